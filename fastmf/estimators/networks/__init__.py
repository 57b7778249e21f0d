"""Reports on networks: errors of couplings, tests, edges, centralities, groups, resampling.

Modules:

    edges.py      covariances of couplings, the posterior of edges, and differences between groups
    network.py    methods of machines with scalar couplings, and bootstrap results
"""
