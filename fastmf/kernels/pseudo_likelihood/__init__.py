"""Pseudo-likelihoods of binary, categorical and ordinal units.

The partition function cancels in the probability of a unit given all others (Besag 1975), so that

    P = sum over rows s and units i of w_s ln p(x_si | all other units of the row)

is maximised instead of the likelihood: a sum of logistic regressions, here with one coupling for
both units of a pair. `binary`, `potts` and `ordinal` compute the value and its derivatives;
`binary` also has the coordinate steps of BSLM (Nguyen & Wood 2016), and `hamming` the similarity of
rows, for weights of sequences and trees of rows.
"""
