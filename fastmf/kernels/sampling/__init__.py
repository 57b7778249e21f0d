"""Gibbs sampling, annealing, and their random numbers.

Given one side of a bipartite machine, the units of the other are independent, and drawn from their
tilted priors (`gibbs`). Along a path from independent units (beta = 0) to the model (beta = 1) the
weights of annealed chains average to the ratio of partition functions (Neal 2001):

    log Z - log Z_0 = log <product over steps of p(x; beta') / p(x; beta)>

`annealed` does so for layers, and `visible` for fully visible machines. A random number is a
function of seed, step, row and unit (`random`), so that draws do not depend on the number of
threads.
"""
