"""Everything that runs under a lease."""
