"""Machines with hidden layers: RBMs, DBMs and conditional RBMs.

`boltzmann_machines.py` and `conditional_rbm.py` contain the estimators, `_machine.py` the methods
shared by RBMs and DBMs, and `_learning.py` their `fit` and the initial priors of their layers.
"""
