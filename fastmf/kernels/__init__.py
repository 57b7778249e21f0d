"""Compiled kernels, which change arrays in place; each has a NumPy twin in `fastmf.reference`."""
