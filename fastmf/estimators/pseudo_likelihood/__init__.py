"""Machines of binary, ordinal and categorical items by maximum pseudo-likelihood.

Each machine has a file; `_base.py` has the rows, fits, warnings and files that all share.
"""
