"""Machines with hidden layers: RBMs, DBMs and conditional RBMs."""
