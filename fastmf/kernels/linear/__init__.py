"""Products of dense matrices.

All systems need fields: a matrix of couplings times the states x of a few rows,

    f_j = sum_i W_ij x_i

Couplings are packed once, in panels of a few vectors of the processor. Each entry of a product is
the same chain of fused multiply-adds, whatever other rows are multiplied.
"""
