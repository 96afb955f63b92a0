"""Measurements that anybody can repeat: `ops bench <noun>`, one module a noun.

A bench works in a folder of its own, runs its baseline in the same run, interleaved, and prints
figures, never a verdict: machines differ.
"""
