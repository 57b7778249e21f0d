"""Reports on networks: errors of couplings, tests, edges, centralities, groups, resampling.

Files of the room:

    network.py           methods of machines, and results of resampled rows
    edge_inclusion.py    covariances of couplings, and the posterior of edges from estimates
    group_comparison.py  differences between groups, and permutations of their rows
"""
