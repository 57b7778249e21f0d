"""Machines with hidden layers: RBMs, DBMs and conditional RBMs.

`_machine.py` has the methods that RBMs and DBMs share, `_learning.py` their `fit`, `denoising.py`
restored rows, `_units.py` priors of layers, and `_features.py` standardised features.
"""
