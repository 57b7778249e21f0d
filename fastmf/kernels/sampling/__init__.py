"""Gibbs sampling, annealing, and their random numbers.

Given one side of a bipartite machine, the units of the other side are independent, and drawn from
their tilted priors. Along a path from independent units (beta = 0) to the model (beta = 1), the
mean weight of annealed chains is the ratio of partition functions (Neal 2001):

    log Z - log Z_0 = log <product over steps of p(x; beta') / p(x; beta)>

`annealing` has the kernels for layers and for fully visible machines.
"""
