"""Regression and classification with spike-and-slab priors, by expectation propagation.

Modules:

    spike_slab.py              the estimators
    _spike_slab.py             their base class: fits, credible sets, reports, files
    _rows.py                   rows from moments, summary statistics or files; unpenalised columns
"""
