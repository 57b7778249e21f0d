"""Gibbs sampling, annealing, and their random numbers, in plain NumPy."""
