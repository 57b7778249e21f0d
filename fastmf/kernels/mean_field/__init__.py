"""Sweeps of naive mean field, TAP and relaxed belief propagation.

A unit sees all others through a tilt exp(b x - a x^2 / 2) of its prior. Plefka's expansion of the
free energy at fixed means m and variances v, to second order in the couplings W, gives (Eqs. 67-69
of Tramel et al. 2018)

    a = -(W^2)' v,    b = W' m + a m,    (m, v) = moments of the prior under (b, a)

to first order without a (naive mean field), to third with the term of the third cumulants. `tap`
iterates rows of dense models, `sparse` rows of graphs, `groups` states of categorical units;
`relaxed_bp` keeps a cavity for each pair of units. How a sweep is judged is in `rows`.
"""
