"""Finding the right lines: read only, no clock of its own, no writes."""
