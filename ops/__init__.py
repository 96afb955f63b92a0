"""What people touch: the command line, the first run, and the health checks."""
