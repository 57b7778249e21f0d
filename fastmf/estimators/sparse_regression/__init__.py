"""Regression and classification with spike-and-slab priors, by expectation propagation.

Files of the room:

    _spike_slab.py             the base: options, the search for hyper-parameters, reports, files
    _moments.py                rows that have given moments, or z-scores and correlations
    _credible_sets.py          sets of correlated features that hold an effect
    _unpenalised.py            features that are always in
    _rows.py                   features that stay in files
"""
