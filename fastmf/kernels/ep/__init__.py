"""Sites of expectation propagation.

Every prior is replaced by a Gaussian site exp(t1 w - t2 w^2 / 2), so that the model is a Gaussian.
The cavity (c1, c2) of a unit is its marginal Gaussian without its site. The new site gives the unit
the moments of its prior times the cavity (Minka 2001):

    t1 = mean / var - c1,    t2 = 1 / var - c2

`sites` updates the sites of single units, in parallel or in sequence. `site_blocks` sums the
patterns of inclusion of blocks of correlated units.
"""
