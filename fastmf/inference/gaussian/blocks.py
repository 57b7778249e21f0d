"""Gaussian sides with sites that couple the units of blocks: exp(t'w - w'Tw / 2) for each block.

Naturals of sites, cavities and marginals, and moments, are stored as one vector each,

    [linear terms, or means, of all units | precisions, or variances, of single units
     | matrices of all blocks, small ones first]

so that their sums and multiples are sums and multiples of vectors. `Blocks` is this layout.
"""

from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.sparse import csr_array, eye_array

from fastmf._common.linalg import cholesky
from fastmf._common.stored_columns import StoredColumns
from fastmf.inference.gaussian import gaussian_side
from fastmf.inference.gaussian.bipartite import Latent, with_latent_columns
from fastmf.inference.gaussian.dense import Dense, DenseInverse, GaussianMoments, with_zeros
from fastmf.inference.gaussian.low_rank import LowRank
from fastmf.models.sparse_linear import gram_of

# Number of units per row up to which a full matrix is cheaper, with blocks.
MAX_DENSE_RATIO = 2.5


def block_side(model, blocks, n_threads=None):
    """Make the Gaussian side of a linear model with blocks."""
    y, noise_variance = model.y, model.noise_variance
    stored = isinstance(model.X, StoredColumns)
    dense = not (model.has_latent or stored) and model.n_units <= MAX_DENSE_RATIO * model.n_samples
    if dense:
        side = Dense.of_regression(model.X, y, noise_variance, gram_of(model))
    else:
        side = gaussian_side(model, n_threads)
    kind, X = type(side), model.X
    if kind is LowRank and model.has_latent:
        X = with_latent_columns(X)
    return BlockSide(side, blocks, lambda rotate: kind(rotate(X), y, noise_variance, n_threads))


class Blocks:
    """Blocks of units that share a site, and the layout of vectors of naturals.

    Attributes
    ----------
    members : list of int array
        The units of each block; blocks are sorted by size, then by first unit.
    units, singles : int array
        Concatenated units of all blocks; units in no block.
    starts, squares : int64 array of shape (n_blocks + 1,)
        First unit and first matrix element of each block, and the ends of the last block.
    by_size : list of int array of shape (n_blocks of this size, size)
        The units of the blocks of each size.
    """

    def __init__(self, members, n_units):
        members = (np.sort(units) for units in members)
        self.members = sorted(members, key=lambda units: (len(units), units[0]))
        self.n_units = n_units
        self.units = np.concatenate([np.empty(0, np.int64), *self.members])
        is_single = np.ones(n_units, bool)
        is_single[self.units] = False
        self.singles = np.flatnonzero(is_single)
        sizes = np.array([len(units) for units in self.members], np.int64)
        self.starts = np.append(0, np.cumsum(sizes))
        self.squares = np.append(0, np.cumsum(sizes * sizes))
        self.by_size = [np.array(list(alike)) for _, alike in groupby(self.members, len)]
        # For each unit of a block, its row and diagonal element; for each element of the matrices,
        # the places in `units` of its row and column, and the transposed element.
        of_unit, of_element = (np.repeat(np.arange(len(sizes)), n) for n in (sizes, sizes**2))
        local = np.arange(len(self.units)) - self.starts[of_unit]
        self._rows = self.squares[of_unit] + local * sizes[of_unit]
        self._diagonal = self._rows + local
        size, first = sizes[of_element], self.squares[of_element]
        row, column = np.divmod(np.arange(self.squares[-1]) - first, size)
        self._row, self._column = self.starts[of_element] + row, self.starts[of_element] + column
        self._transposed = first + column * size + row

    def parts(self, vector):
        """Return views of linear terms, precisions of single units, and matrices of blocks."""
        n, end = self.n_units, self.n_units + len(self.singles)
        return vector[:n], vector[n:end], vector[end:]

    def matrices(self, elements):
        """Yield views of the matrices of each size, (n_blocks of this size, size, size)."""
        start = 0
        for units in self.by_size:
            n, c = units.shape
            yield elements[start : start + n * c * c].reshape(n, c, c)
            start += n * c * c

    def each(self, elements):
        """Yield views of the matrices of all blocks."""
        for start, n in zip(self.squares[:-1], np.diff(self.starts), strict=True):
            yield elements[start : start + n * n].reshape(n, n)

    def add_to_diagonals(self, values, elements):
        """Add values of the units of blocks, in the order of `units`, to the diagonals."""
        elements[self._diagonal] += values

    def scaled(self, elements, scale):
        """Divide the rows and columns of the matrices by the scales of the units."""
        scale = scale[self.units]
        return elements / scale[self._row] / scale[self._column]

    def add_to(self, matrix, elements):
        """Add the matrices of blocks to a matrix of the first units."""
        matrix[self.places()] += elements

    def places(self):
        """Return the units of the rows and columns of all matrix elements."""
        return self.units[self._row], self.units[self._column]

    def sparse(self, elements, single):
        """Make the sparse matrix of all units, from block matrices and values of single units."""
        places = (np.append(units, self.singles) for units in self.places())
        values = np.append(elements, single)
        return csr_array((values, tuple(places)), (self.n_units, self.n_units))

    def of_blocks(self, values):
        """Make a vector from values of units, which are equal for all units of a block."""
        counts = np.diff(self.squares)
        per_block = values[self.units][self.starts[:-1]]
        return np.concatenate([values, values[self.singles], np.repeat(per_block, counts)])

    def spread(self, single, of_blocks):
        """Make an array of all units, from single units and the units of blocks."""
        values = np.empty((*np.shape(single)[:-1], self.n_units))
        values[..., self.singles], values[..., self.units] = single, of_blocks
        return values

    def diagonal(self, vector):
        """Return precisions, or variances, of all units."""
        _, single, elements = self.parts(vector)
        return self.spread(single, elements[self._diagonal])

    def symmetric(self, vector):
        """Symmetrise the matrices of a vector."""
        vector = vector.copy()
        elements = self.parts(vector)[2]
        elements[:] = (elements + elements[self._transposed]) / 2
        return vector

    def products(self, elements, linear):
        """Multiply the matrices by the entries of block units of a vector of all units."""
        return self.row_sums(elements * linear[self.units][self._column])

    def row_sums(self, elements):
        """Sum the rows of the matrices, in the order of `units`."""
        return np.add.reduceat(elements, self._rows) if len(elements) else elements

    def inverses(self, elements):
        """Compute inverses, and the sum of log-determinants, of positive definite matrices."""
        factors, inverses = np.empty((2, len(elements)))
        for M, L, inverse in zip(*map(self.each, (elements, factors, inverses)), strict=True):
            factor, failed = dpotrf(M.T, lower=0)  # in Fortran order
            if failed:
                raise LinAlgError("a matrix is not positive definite.")
            L[:], inverse[:] = factor.T, dpotri(factor, lower=0)[0].T
        log_determinant = 2 * np.log(factors[self._diagonal]).sum()
        if not np.isfinite(log_determinant):
            raise LinAlgError("a matrix is not positive definite.")
        lower = self._row >= self._column
        return np.where(lower, inverses, inverses[self._transposed]), log_determinant

    def converted(self, vector):
        """Convert variances to precisions, or vice versa; also return the log-determinant."""
        _, single, elements = self.parts(vector)
        if not ((single > 0) & (single < np.inf)).all():
            raise LinAlgError("a variance is not positive.")
        inverse, log_determinant = self.inverses(elements)
        return 1 / single, inverse, log_determinant + np.log(single).sum()

    def natural(self, moments):
        """Return naturals of independent Gaussians; LinAlgError if moments are improper."""
        mean = self.parts(moments)[0]
        single, elements, _ = self.converted(moments)
        linear = self.spread(single * mean[self.singles], self.products(elements, mean))
        return np.concatenate([linear, single, elements])

    def log_partition(self, natural, mean):
        """Sum the log-partitions of independent Gaussians with these naturals and means."""
        linear, log_determinant = self.parts(natural)[0], self.converted(natural)[2]
        return (linear @ mean - log_determinant + self.n_units * np.log(2 * np.pi)) / 2


class BlockSide(NamedTuple):
    """A linear model with sites of blocks and of single units."""

    side: object  # GaussianSide, without blocks
    blocks: Blocks
    remake: object  # remake(rotate) makes the side with rotate(X) instead of X

    @property
    def n_units(self):
        """Number of units."""
        return self.side.n_units

    def moments(self, site):
        """Compute moments, as a vector, and log-partition; None if the Gaussian is not proper."""
        try:
            return self._moments(site)
        except LinAlgError:
            return None

    def _moments(self, site):
        blocks, (linear, _, _) = self.blocks, self.blocks.parts(site)
        rotations, mixing, inverse = self.inverse(site)
        moments = inverse.moments_and_covariances(mixing.T @ linear, blocks.by_size)
        ((mean, var), log_partition), covariances = moments
        if rotations:
            covariances = [
                U @ C @ np.swapaxes(U, 1, 2) for U, C in zip(rotations, covariances, strict=True)
            ]
        matrices = [C.ravel() for C in covariances]
        vector = np.concatenate([mixing @ mean, var[blocks.singles], *matrices])
        return GaussianMoments(vector, log_partition)

    def _precision(self, site):
        """Return the matrix of precisions of all units, including sites."""
        _, single, elements = self.blocks.parts(site)
        precision = np.array(self.side.precision.T, order="F")  # symmetric: a plain copy
        singles = self.blocks.singles
        precision[singles, singles] += single
        self.blocks.add_to(precision, elements)
        return precision

    def inverse(self, site):
        """Return A^-1; LinAlgError if it does not exist."""
        blocks, (_, single, elements) = self.blocks, self.blocks.parts(site)
        mixing = eye_array(self.n_units, format="csr")
        if isinstance(self.side, Dense):
            factor = cholesky(self._precision(site), overwrite=True)
            return BlockInverse((), mixing, DenseInverse(self.side, factor))
        if isinstance(self.side, Latent):
            precision = blocks.spread(single, np.zeros(len(blocks.units)))
            inverse = self.side._inverse(precision, lambda A: blocks.add_to(A, elements))
            return BlockInverse((), mixing, inverse)
        diagonals, rotations = zip(*map(np.linalg.eigh, blocks.matrices(elements)), strict=True)
        precision = blocks.spread(single, np.concatenate([d.ravel() for d in diagonals]))
        of_blocks = np.concatenate([U.ravel() for U in rotations])
        mixing = blocks.sparse(of_blocks, np.ones(len(blocks.singles)))

        def rotate(X):
            if isinstance(X, StoredColumns):
                return X.mixed(mixing)
            rotated = np.array(X.T, np.float64, order="C")
            for units, U in zip(blocks.by_size, rotations, strict=True):
                rotated[units] = np.swapaxes(U, 1, 2) @ rotated[units]
            return rotated.T

        inverse = self.remake(rotate).inverse(precision)
        if inverse is None:
            raise LinAlgError("the Gaussian is not proper.")
        return BlockInverse(rotations, mixing, inverse)


class BlockInverse(NamedTuple):
    """A^-1 with sites of blocks."""

    rotations: tuple  # for each size, rotations of blocks that make their sites diagonal; or empty
    mixing: object  # the sparse matrix of all rotations
    inverse: object  # A^-1 of a GaussianSide of the rotated units

    def covariance(self, units):
        """Return the covariance of some units, which form complete blocks."""
        mixing = self.mixing[units][:, units]
        return mixing @ self.inverse.covariance(units) @ mixing.T

    def variance_along(self, rows):
        """Compute variances of r'w for the rows r of a matrix, of all or of the first units."""
        return self.inverse.variance_along(with_zeros(rows, self.mixing.shape[0]) @ self.mixing)


def inverse_with(model, labels, sites, elements):
    """Return A^-1 of a linear model with these sites."""
    members = members_of(labels)
    if not members:
        return gaussian_side(model).inverse(sites[1])
    blocks = Blocks(members, model.n_units)
    elements = elements[: blocks.squares[-1]]
    site = np.concatenate([sites[0], sites[1, blocks.singles], elements])
    return block_side(model, blocks).inverse(site)


def n_elements(labels):
    """Count the matrix elements of the blocks of these labels."""
    counts = np.unique(labels, return_counts=True)[1]
    return int((counts[counts > 1] ** 2).sum())


def members_of(labels):
    """Return the units of each label that occurs more than once."""
    labels = np.asarray(labels)
    order = np.argsort(labels, kind="stable")
    parts = np.split(order, np.flatnonzero(labels[order][1:] != labels[order][:-1]) + 1)
    return [units for units in parts if len(units) > 1]


def labels_of(members, n):
    """Number n units, equally within a block, in the order of the units."""
    first = np.arange(n)
    if len(members):
        sizes = [len(units) for units in members]
        units, starts = np.concatenate(members), np.cumsum([0, *sizes[:-1]])
        first[units] = np.repeat(np.minimum.reduceat(units, starts), sizes)
    return (np.cumsum(first == np.arange(n)) - 1)[first]
