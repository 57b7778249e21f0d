"""Kernels of learning layered machines, in plain NumPy.

The twin of training steps, `fastmf.kernels.training.train`, is the general path of learning:
`fastmf.learning.layered.general_step`.
"""
