"""Sites of expectation propagation, and a pass over linear models.

Every prior is replaced by a Gaussian site exp(t1 w - t2 w^2 / 2), so that the model is a Gaussian.
Without its site a unit has the cavity (c1, c2); the site is such that Gaussian and prior times
cavity have the same moments (Minka 2001):

    t1 = mean / var - c1,    t2 = 1 / var - c2

`sites` does this for single units, all at once or one after another, `site_blocks` for blocks of
correlated ones by their patterns of inclusion; `linear_model` computes the moments of units from a
design matrix.
"""
