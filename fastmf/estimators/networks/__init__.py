"""Reports on networks: errors of couplings, tests, edges, centralities, groups, resampling.

Files of the room:

    network.py                           methods of machines, those with single couplings apart
    covariances.py                       covariances of couplings, penalties, few rows
    edge_inclusion.py                    posterior of edges from estimates and their covariance
    group_comparison.py, permutations.py differences between groups
    resampling.py                        predictability, bootstraps, stability
"""
