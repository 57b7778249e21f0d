"""Products of matrices, dense and sparse, and copies for them."""
