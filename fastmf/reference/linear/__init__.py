"""Products of matrices, dense and sparse, and copies for them, in plain NumPy."""
