"""Compilation: kernels, their cache, intrinsic functions, and messages to users."""
