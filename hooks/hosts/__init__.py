"""One adapter per agent host: its JSON in, hook events out, and its JSON back.

Owns every fact about a host's wire format, and installing into a host. The adapters are pure
functions; nothing in here opens a socket or a database.
"""
