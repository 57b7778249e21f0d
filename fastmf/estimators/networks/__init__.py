"""Reports on networks: errors of couplings, tests, edges, centralities, groups, resampling."""
