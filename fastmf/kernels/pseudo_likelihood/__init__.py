"""Pseudo-likelihoods of binary, categorical and ordinal units.

The partition function drops out of the probability of a unit given all others (Besag 1975), so that

    P = sum over rows s and units i of w_s ln p(x_si | all other units of the row)

is maximised in the place of the likelihood: a sum of logistic regressions, here with one coupling
for both units of a pair. `binary`, `potts` and `ordinal` give value and derivatives; `binary` has
the coordinate steps of BSLM (Nguyen & Wood 2016), too, and `hamming` the similarity of rows, which
weights of sequences and trees of rows are made from.
"""
