"""Expectation propagation and adaptive TAP."""
