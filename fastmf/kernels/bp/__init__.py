"""Sweeps of belief propagation, and local search.

The message from unit i to its neighbour j leaves out the message from j to i:

    m_ij(x_j) = sum over x_i of psi_i(x_i) psi_ij(x_i, x_j) product over k != j of m_ki(x_i)

For the most probable assignment a maximum replaces the sum. At a fixed point the beliefs are a
stationary point of the Bethe free energy (Yedidia, Freeman & Weiss 2005), which is exact on trees.
`belief_propagation` serves two layers of two-valued units, in ratios that never overflow, `groups`
categorical units with binary hidden units, and `graphs` any graph; `local_search` flips single
units of decoded assignments.
"""
