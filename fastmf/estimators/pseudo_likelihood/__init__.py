"""Machines of binary, ordinal and categorical items by maximum pseudo-likelihood.

`pairwise_machines.py` and `potts_machine.py` have the machines, `_base.py` the rows, fits, warnings
and files that all share.
"""
