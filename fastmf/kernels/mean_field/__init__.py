"""Sweeps of naive mean field, TAP and relaxed belief propagation."""
