"""Regression and classification with spike-and-slab priors, by expectation propagation.

Files of the room:

    spike_slab.py              the estimators
    _spike_slab.py             their base: options, the search, credible sets, reports, files
    _rows.py                   rows from moments, summaries or files, without columns of flat prior
"""
