"""Products of dense matrices.

Most kernels need fields, the product of a matrix of couplings with the states x of a few rows,

    f_j = sum_i W_ij x_i

Couplings are packed once, in panels as wide as a few vectors of the processor. An entry is computed
by the same chain of fused multiply-adds whichever rows are multiplied with it.
"""
