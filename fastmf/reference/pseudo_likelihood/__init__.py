"""Pseudo-likelihoods of binary and categorical units, in plain NumPy."""
