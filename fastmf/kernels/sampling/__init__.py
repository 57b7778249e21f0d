"""Gibbs sampling, annealing, and their random numbers."""
