"""Kernels of learning layered machines; steps are in `fastmf.learning.layered.step`.

The log-likelihood of a row v is F(v) - F, with log-partitions of the machine with its visible units
at v, and free. Its gradient by the couplings is the difference of two averages,

    dW = <v h'> given the data - <v h'> of the model

the second from mean-field solutions (with a term of second order), Gibbs chains, or all states.
Centred by the offsets of the units it does not depend on how these are coded (`ascent`).
"""
