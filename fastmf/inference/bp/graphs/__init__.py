"""Belief propagation on the graph of a BoltzmannMachine of discrete units."""
