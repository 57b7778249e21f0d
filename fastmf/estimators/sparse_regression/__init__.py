"""Regression and classification with spike-and-slab priors, by expectation propagation.

Files of the room:

    _spike_slab.py             what both share: options, the search for hyper-parameters, files
    _from_moments.py           fits from moments and summary statistics, in place of rows
    _reports.py                intervals, joint inclusion, draws, and chains that check them
    _credible_sets.py          sets of correlated features that hold an effect
    _unpenalised.py            features that are always in
    _rows.py                   features that stay in files
"""
