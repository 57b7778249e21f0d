"""Sweeps of belief propagation, and local search, in plain NumPy."""
