"""Machines of binary, ordinal and categorical items by maximum pseudo-likelihood.

`pairwise_machines.py` and `potts_machine.py` contain the estimators, `_base.py` their common base
class, which handles rows of data, fits, warnings and files.
"""
