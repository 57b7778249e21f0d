"""Machines of binary, ordinal and categorical items by maximum pseudo-likelihood.

Files of the room: `_base.py`, fits, warnings and files that all machines share, and `_observed.py`,
the rows of a fit, complete ones where values are missing. Each machine has a file.
"""
