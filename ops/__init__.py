"""The command line, service units, evaluation and benchmarks."""
