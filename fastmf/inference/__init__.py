"""Solvers: a model in; marginals, log-partition and a record of convergence out."""
