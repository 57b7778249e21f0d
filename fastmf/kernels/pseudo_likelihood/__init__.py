"""Pseudo-likelihoods of binary, categorical and ordinal units.

The partition function cancels in the probability of a unit given all other units (Besag 1975), and

    P = sum over rows s and units i of w_s ln p(x_si | all other units of the row)

is maximised instead of the likelihood: a sum of logistic regressions in which the two units of a
pair share their coupling. `binary`, `potts` and `ordinal` compute value and derivatives, and
`binary` the coordinate steps of BSLM (Nguyen & Wood 2016). `hamming` compares rows, for the weights
of sequences and for trees of similar rows.
"""
