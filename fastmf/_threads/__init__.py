"""Threads that run kernels."""
