"""Kernels of learning layered machines; steps are in `fastmf.learning.layered.step`.

The log-likelihood of a row v is F(v) - F, the log-partitions of the machine with its visible units
clamped to v and with free units. Its gradient by the couplings is the difference of two averages,

    dW = <v h'> given the data - <v h'> of the model

The second average is from mean-field solutions (with a term of second order), Gibbs chains, or all
states. Centring by the offsets of units makes the gradient independent of their coding (`ascent`).
"""
