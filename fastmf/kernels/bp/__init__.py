"""Sweeps of belief propagation, and local search."""
