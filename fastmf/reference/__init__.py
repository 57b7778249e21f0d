"""Plain NumPy twins of the kernels, by which these are tested and timed."""
