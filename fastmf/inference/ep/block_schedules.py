"""Expectation propagation with sites of blocks: schedules, and the result.

The parallel schedule is that of single sites; patterns that turn out to be too small grow. A block
of all units needs no steps: its cavity is the likelihood, whatever its site.
"""

import numpy as np
from numpy.linalg import LinAlgError

from fastmf._outcomes import CONVERGED, LOST, MESSAGES
from fastmf.inference.ep.block_sites import (
    MAX_SHARE,
    BlockState,
    block_problem,
    first_included,
    most_included,
    tilt,
)
from fastmf.inference.ep.parallel import BARREN_SWEEPS, parallel_sweeps
from fastmf.inference.ep.result import ExpectationPropagation
from fastmf.inference.ep.sites import log_normalisers, total
from fastmf.inference.gaussian.blocks import blocks_of_members
from fastmf.priors._protocol import parts_of
from fastmf.special import sigmoid

# Probability of two features of a block, below which patterns of more are no longer needed: below
# that from which they are.
SPARE_SHARE = MAX_SHARE / 5
# Largest precision of a first site, in units of that of the slab, or of a latent variable.
MAX_FIRST_PRECISION = 1e6


def solve_with_blocks(model, members, init, damping, options, trace):
    """The result of expectation propagation with these blocks."""
    blocks = blocks_of_members(members, model.n_units)
    problem = block_problem(model, blocks, options, _included_before(blocks, init))
    start = None if init is None else _sites_from(problem, init)
    bounded = problem.min_site_precision > -np.inf
    if not (len(blocks.singles) or bounded) and len(members) == 1:
        state = _state_of_one_block(model, problem)
        if state is not None:
            trace.add(state.residual(), lambda: state.problem.energy(state))
            return _result(model, state.problem, (state, CONVERGED), trace)
    state = None if start is None else problem.state_of(start)
    if state is None:
        state = problem.state_of(_first_sites(model, problem))
    if state is None:
        raise ValueError(
            "the model has no proper Gaussian side: make values of X and y smaller, or "
            "noise_variance larger if it is small beside them."
        )
    while True:
        state, outcome, _ = parallel_sweeps(problem, state, damping, trace, BARREN_SWEEPS)
        deeper = problem.deepened(state.tilted) if outcome == CONVERGED else None
        new = None if deeper is None else deeper.retilted(state)
        if new is None:
            return _result(model, problem, (state, outcome), trace)
        problem, state = deeper, new


def _state_of_one_block(model, problem):
    """The fixed point of a block that holds all units; None if it is not proper."""
    X = np.asarray(model.X, np.float64)
    order = problem.blocks.units
    linear = X.T @ model.y / model.noise_variance
    precision = (X.T @ X / model.noise_variance)[np.ix_(order, order)]
    cavity = np.concatenate([linear, precision.ravel()])
    tilted = tilt(problem, cavity)
    while (deeper := problem.deepened(tilted)) is not None:
        problem, tilted = deeper, tilt(deeper, cavity)
    if not tilted.exist.all():
        return None
    try:
        site = problem.blocks.natural(tilted.moments) - cavity
    except LinAlgError:
        return None
    found = problem.side.moments(site)
    if found is None:
        return None
    # The Gaussian has these moments, but for rounding.
    return BlockState(
        problem, site, tilted.moments, cavity, tilted, found.log_partition, site, 0.0,
    )  # fmt: skip


def _included_before(blocks, init):
    """Features that patterns need, of blocks that a result has, too; None without a result."""
    given = getattr(init, "block_sites", None)
    if given is None:
        return None
    sizes = np.diff(blocks.starts)
    most, share = first_included(sizes), np.zeros(len(sizes))
    place = {units.tobytes(): k for k, (units, _) in enumerate(given)}
    own = np.array([place.get(units.tobytes(), -1) for units in blocks.members])
    known = own >= 0
    most[known], share[known] = init.most_included[own[known]], init.full_probability[own[known]]
    grown = share > MAX_SHARE
    most[grown] = [most_included(c) for c in sizes[grown]]
    # What was needed for other hyper-parameters may no longer be: if s features have probability q,
    # two have about q^(2 / s).
    spare = known & (most < sizes) & (share ** (2 / np.maximum(most, 1)) < SPARE_SHARE)
    return np.where(spare, np.minimum(first_included(sizes), most), most)


def _first_sites(model, problem):
    """Sites that give the units the moments of their priors, unless these are nearly zero."""
    blocks, slab = problem.blocks, parts_of(model.prior)[0].precision
    largest = MAX_FIRST_PRECISION * np.append(slab, np.ones(blocks.n_units - len(slab)))
    mean = np.zeros(blocks.n_units)
    if problem.single is not None:
        zero = np.zeros(len(blocks.singles))
        mean[blocks.singles], var = problem.single.prior.moments(zero, zero)
        single = 1 / np.where(np.isfinite(var) & (var > 0), var, 1.0)
        mean[~np.isfinite(mean)] = 0.0
    else:
        single = np.empty(0)
    single = np.clip(single, problem.min_site_precision, largest[blocks.singles])
    of_blocks = np.minimum(problem.prior_precision, largest)[blocks.units]
    precision = blocks.spread(single, of_blocks)
    return _diagonal_sites(blocks, precision * mean, precision)


def _diagonal_sites(blocks, linear, precision):
    """A vector of sites with diagonal matrices."""
    elements = np.zeros(blocks.squares[-1])
    of_units = blocks.split_by_size(precision[blocks.units])
    for M, values in zip(blocks.matrices(elements), of_units, strict=True):
        np.einsum("kii->ki", M)[:] = values
    return np.concatenate([linear, precision[blocks.singles], elements])


def _sites_from(problem, init):
    """The vector of the sites of a result, or array; parts of its blocks keep their sites."""
    blocks = problem.blocks
    sites = init.sites if isinstance(init, ExpectationPropagation) else np.asarray(init, float)
    if sites.shape != (2, blocks.n_units) or not np.isfinite(sites).all():
        raise ValueError(
            f"init must be finite and have shape {(2, blocks.n_units)}, got {sites.shape}."
        )
    vector = _diagonal_sites(blocks, *sites)
    home, place = np.full(blocks.n_units, -1), np.zeros(blocks.n_units, int)
    given = getattr(init, "block_sites", None) or ()
    same = {units.tobytes(): T for units, T in given}
    for k, (units, _) in enumerate(given):
        home[units], place[units] = k, np.arange(len(units))
    for M, members in zip(blocks.matrices(blocks.parts(vector)[2]), blocks.by_size, strict=True):
        for matrix, units in zip(M, members, strict=True):
            if (T := same.get(units.tobytes())) is not None:
                matrix[:] = T
                continue
            for k in np.unique(home[units[home[units] >= 0]]):
                own = np.flatnonzero(home[units] == k)
                rows = place[units[own]]
                matrix[np.ix_(own, own)] = given[k][1][np.ix_(rows, rows)]
    return vector


def _result(model, problem, end, trace):
    """The result with the state at which a schedule ended."""
    state, outcome = end
    blocks = problem.blocks
    log_partition = -problem.energy(state)
    if outcome == CONVERGED and not np.isfinite(log_partition):
        outcome = LOST
    normaliser = total(log_normalisers(model.prior), model.unit_weights())
    moments = np.where(blocks.of_blocks(state.tilted.exist), state.tilted.moments, state.gaussian)
    linear, precision = blocks.parts(state.site)[0], blocks.diagonal(state.site)
    b, a = blocks.parts(state.cavity)[0], blocks.diagonal(state.cavity)
    matrices = [M for alike in blocks.matrices(blocks.parts(state.site)[2]) for M in alike]
    included, alone = _inclusion(model, problem, state)
    return ExpectationPropagation(
        mean=blocks.parts(moments)[0],
        var=blocks.diagonal(moments),
        b=b,
        a=a,
        log_partition=log_partition,
        converged=outcome == CONVERGED,
        n_iter=len(trace.residuals),
        residual=state.residual(),
        message=MESSAGES[outcome],
        history=np.array(trace.residuals),
        sites=np.stack([linear, precision]),
        log_evidence=log_partition - normaliser if np.isfinite(normaliser) else -np.inf,
        energies=np.array(trace.energies),
        schedule="parallel",
        block_sites=tuple(zip(blocks.members, matrices, strict=True)),
        inclusion_probability=included,
        sole_probability=alone,
        full_probability=state.tilted.full,
        most_included=problem.patterns.largest,
        gaussian_mean=blocks.parts(state.gaussian)[0],
        prior_share=_prior_share(blocks, state),
    )


def _prior_share(blocks, state):
    """How many coefficients the sites determine: sum of t2 v, and of the traces of T S."""
    (_, t2, T), (_, v, S) = map(blocks.parts, (state.site, state.gaussian))
    return float(t2 @ v + T @ S)


def _inclusion(model, problem, state):
    """Probabilities of not being zero, and of being the only one of the block, of the features."""
    blocks, prior = problem.blocks, parts_of(model.prior)[0]
    n = len(prior.field)
    b, a = blocks.parts(state.cavity)[0][:n], blocks.diagonal(state.cavity)[:n]
    both = np.stack([sigmoid(prior.tilted_log_odds(b, a))] * 2)
    both[:, blocks.units] = state.tilted.included, state.tilted.alone
    return both[:, : model.n_features]
