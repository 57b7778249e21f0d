"""Compiled kernels: arrays in, arrays changed in place; each has a NumPy twin in `reference`."""
