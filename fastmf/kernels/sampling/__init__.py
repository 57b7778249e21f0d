"""Gibbs sampling and annealed importance sampling, and couplings that hidden units mediate.

Given one side of a bipartite machine, the units of the other are independent, and drawn from their
tilted priors. Along a path from independent units (beta = 0) to the model (beta = 1) the weights of
annealed chains average to the ratio of partition functions (Neal 2001):

    log Z - log Z_0 = log <product over steps of p(x; beta') / p(x; beta)>

`annealing` computes these weights for layered and for fully visible machines.
"""
