"""Regression and classification with spike-and-slab priors, by expectation propagation.

Files of the room:

    spike_slab.py              the estimators
    _spike_slab.py             their base: options, search for hyper-parameters, reports, files
    _rows.py                   rows from moments, summaries or files, without columns of flat prior
    _credible_sets.py          sets of correlated features that hold an effect
"""
