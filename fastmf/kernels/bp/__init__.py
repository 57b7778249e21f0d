"""Sweeps of belief propagation, and local search.

The message from unit i to unit j sums over the states of i, without the message of j:

    m_ij(x_j) = sum over x_i of psi_i(x_i) psi_ij(x_i, x_j) product over k != j of m_ki(x_i)

(a maximum instead of the sum for the best assignment). At a fixed point beliefs are stationary
points of the Bethe free energy (Yedidia, Freeman & Weiss 2005), exact on trees. Between two layers
of two-valued units messages are ratios, which never overflow (`belief_propagation`); `groups` is
for categorical visible units, `graphs` for any graph, `local_search` for flips of decoded
assignments.
"""
