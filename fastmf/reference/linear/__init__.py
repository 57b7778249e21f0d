"""Packed matrices of the kernels, in plain NumPy."""
