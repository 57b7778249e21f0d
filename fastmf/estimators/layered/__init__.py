"""Machines with hidden layers: RBMs, DBMs and conditional RBMs.

`boltzmann_machines.py` and `conditional_rbm.py` have the estimators, `_machine.py` the methods that
RBMs and DBMs share, and `_learning.py` their `fit` and the first priors of their layers.
"""
