"""Fully visible machines of binary, ordinal and categorical units, by pseudo-likelihood.

    _machine.py                what all three share: samples, imputation, options, files
    _composite.py              binary and ordinal ones: selection, solvers, warnings
    _observed.py               rows of a fit: distinct, incomplete, in clusters
    _spins.py                  two values of a column as -1 and +1
    _item_categories.py        categories of ordinal items

`fully_visible.py`, `ordinal_machine.py` and `potts_machine.py` hold options and `fit`, the files of
the same name with an underscore all other methods. Their errors, tests and edges are in `networks`.
"""
