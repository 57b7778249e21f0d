"""Gibbs samplers."""
