"""Breaking memoryd on purpose: `ops chaos <noun>`, one module a noun.

A run makes stores of its own in a folder of its own, harms them in every way it knows, and counts
what was lost. Zero is the only good answer, and the counts say how much was tried.
"""
