"""Sweeps of belief propagation, and local search.

A message tells a unit what a neighbour would be like without it:

    m_ij(x_j) = sum over x_i of psi_i(x_i) psi_ij(x_i, x_j) product over k != j of m_ki(x_i)

(a maximum in the place of the sum for the best assignment). At a fixed point beliefs are the
stationary points of the Bethe free energy (Yedidia, Freeman & Weiss 2005), exact on trees. Between
two layers of two-valued units messages are ratios, which never overflow (`belief_propagation`);
`groups` has states of categorical units, `graphs` any graph, `local_search` flips of decoded
assignments.
"""
