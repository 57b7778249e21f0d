"""Kernels of learning layered machines, in plain NumPy."""
