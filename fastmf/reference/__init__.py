"""Plain NumPy twins of the kernels, with which kernels are compared in tests and timings."""
