"""Sites of expectation propagation, and a pass over linear models.

Each prior is replaced by a Gaussian site exp(t1 w - t2 w^2 / 2), so that the model is a Gaussian.
The marginal of a unit without its site is its cavity (c1, c2). The site is chosen such that the
Gaussian, and the prior times the cavity, have the same moments (Minka 2001):

    t1 = mean / var - c1,    t2 = 1 / var - c2

`sites` does this for single units, all at once or one after another, `site_blocks` for blocks of
correlated units by inclusion patterns; `linear_model` computes the moments of units from a design
matrix.
"""
