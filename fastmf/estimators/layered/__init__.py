"""Machines with hidden layers: RBMs, DBMs and conditional RBMs.

`_machine.py` has the methods that RBMs and DBMs share, `_learning.py` their `fit`, `denoising.py`
restored rows, and `_units.py` priors of layers.
"""
