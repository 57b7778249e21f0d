"""Belief propagation in RBMs of binary units."""
