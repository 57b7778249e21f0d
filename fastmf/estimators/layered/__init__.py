"""Machines with hidden layers: RBMs, DBMs and conditional RBMs.

Files of the room:

    _machine.py                what RBMs and DBMs share: likelihoods, hidden means, files
    _learning.py               their `fit` and `partial_fit`
    _sampling.py, denoising.py their samples and restored rows
    _units.py                  priors of layers, from options
    _conditional_rbm.py        methods of conditional RBMs but `fit`
    _features.py               features of these in units of their deviations
"""
