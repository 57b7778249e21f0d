"""Regression and classification with spike-and-slab priors, by expectation propagation."""
