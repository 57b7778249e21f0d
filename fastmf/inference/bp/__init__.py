"""Belief propagation in machines of two layers of binary units."""
