"""Reports on networks: errors of couplings, tests, edges, centralities, groups, resampling.

Files of the room:

    network.py           methods of machines
    covariances.py       covariances of couplings, penalties, few rows
    edge_inclusion.py    posterior of edges from estimates and their covariance
    group_comparison.py  differences between groups
    resampling.py        results of resampled rows, and permutations of the rows of groups
"""
