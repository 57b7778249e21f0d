"""Threads that run kernels, and waiting for them."""
