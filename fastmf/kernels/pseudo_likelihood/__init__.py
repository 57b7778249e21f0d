"""Pseudo-likelihoods of binary and categorical units."""
