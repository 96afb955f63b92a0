"""Thin, synchronous, and never in the way of its host."""
