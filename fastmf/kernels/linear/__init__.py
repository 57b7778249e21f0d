"""Products of dense matrices.

All systems here need fields: a matrix of couplings times the states x of a few rows,

    f_j = sum_i W_ij x_i

Couplings are packed once, in panels as wide as the vectors of the processor; an entry of a product
is always the same chain of fused multiply-adds, whichever rows are beside it.
"""
