"""Measuring recall: running it over a corpus, scoring it, and fitting its few constants."""
