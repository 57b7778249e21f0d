"""Reports on networks: errors of couplings, tests, edges, centralities, groups, resampling.

Files of the room:

    edges.py      covariances of couplings, the posterior of edges, and differences between groups
    network.py    methods of machines whose couplings are numbers, and results of resampled rows
"""
