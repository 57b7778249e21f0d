"""Kernels of learning layered machines; steps are in `fastmf.learning.layered.step`.

The log-likelihood of a row v is F(v) - F, the log-partition of the machine with its visible units
clamped at v minus the log-partition of the free machine. Its gradient by the couplings is

    dW = <v h'> given the data - <v h'> of the model

with model averages from mean-field solutions (with a term of second order), Gibbs chains, or all
states. Centred by the offsets of the units, it does not depend on their coding (`ascent`).
"""
