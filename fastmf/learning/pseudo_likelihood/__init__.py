"""Fully visible Boltzmann machines by maximum pseudo-likelihood."""
