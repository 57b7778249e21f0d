"""Solvers of machines without hidden units: with a spare one, which is coupled to nothing."""

import functools

import numpy as np

from fastmf.inference.fixed_point import FixedPoint, with_changes
from fastmf.models import RBM
from fastmf.priors import Bernoulli


def allows_no_hidden(solve):
    """Let a solver take RBMs without hidden units: its kernels need a unit in each layer."""

    @functools.wraps(solve)
    def solver(model, init=None, **options):
        if not isinstance(model, RBM) or model.n_hidden:
            return solve(model, init, **options)
        n, dtype = model.n_visible, model.dtype
        spare = RBM(np.zeros((n, 1), dtype), model.visible, Bernoulli(np.zeros(1, dtype)))
        if isinstance(init, FixedPoint):
            init = init.mean, init.var
        if isinstance(init, tuple):
            init = tuple(map(of_visible, init))
        answer = solve(spare, init, **{name: of_visible(part) for name, part in options.items()})
        parts = ((name, getattr(answer, name)) for name in ("mean", "var", "b", "a"))
        layers = {name: (visible, hidden[..., :0]) for name, (visible, hidden) in parts}
        if answer.log_partition is not None:
            layers["log_partition"] = answer.log_partition - np.log(2.0)
        return with_changes(answer, **layers)

    return solver


def of_visible(part):
    """Argument for the visible units, where one is given for each layer."""
    return part[0] if isinstance(part, tuple) else part
