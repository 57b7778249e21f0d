"""RBMs that are solved as graphs, because the kernels for RBMs do not support the task.

Such tasks are clamped units, units of several values, tree-reweighted belief propagation, and pair
beliefs and most probable states of categorical visible units.
"""

from dataclasses import fields as fields_of
from dataclasses import replace

import numpy as np

from fastmf._common import arguments as check
from fastmf.inference.bp.beliefs import Beliefs
from fastmf.inference.bp.graphs.propagation import propagate_on_graph
from fastmf.inference.bp.graphs.units import GraphUnits
from fastmf.inference.fixed_point import ending_of
from fastmf.models.boltzmann import machine_of_layers
from fastmf.priors import Categorical
from fastmf.priors._groups import as_states, column_sizes, only_groups
from fastmf.priors._protocol import has_log_prob
from fastmf.priors._queries import two_values


def needs_graph(options, model, clamp):
    """Whether the kernels for RBMs do not support the units or the options."""
    visible, hidden = model.layers
    of_groups = isinstance(visible, Categorical)
    has_kernel = all(
        two_values(layer) and has_log_prob(layer)
        for layer in ([] if of_groups else [visible]) + [hidden]
    )
    of_states = of_groups and (options.pairwise or options.algorithm == "max")
    return clamp is not None or not has_kernel or bool(of_states)


def propagate_on_layers(options, model, field, clamp, init=None, solve=propagate_on_graph):
    """Solve an RBM as a graph, and return its `Beliefs`."""
    if init is not None:
        raise ValueError("init: not available where the RBM is solved as a graph.")
    n, pairwise = len(model.weights), options.pairwise
    machine = machine_of_layers(model.weights, model.layers)
    tilts = [_joined(*pair, model) for pair in (("field", field), ("clamp", clamp))]
    options = replace(options, pairwise=bool(pairwise), messages=False)
    result = solve(options, machine, *tilts)
    columns = len(column_sizes(model.visible))

    def split(x, at=n):
        return (
            None
            if x is None
            else tuple(part.astype(model.dtype) for part in np.split(x, [at], axis=-1))
        )

    names = [field.name for field in fields_of(Beliefs) if field.name != "message"]
    parts = {name: getattr(result, name) for name in names} | {"message": ending_of(result)}
    parts |= {name: split(parts[name]) for name in ("mean", "var", "b", "a")}
    visible, hidden = np.split(result.assignment, [columns], axis=-1)
    if only_groups(model.visible):
        visible = visible.astype(np.int64)
    parts["assignment"] = visible, hidden
    if pairwise:
        products = _products(machine, result, parts["mean"])
        if pairwise == "mean" and products.ndim == 3:
            products = products.mean(0)
        parts["pairwise"] = products.astype(model.dtype)
    if result.solutions is not None:
        several = result.solutions if result.mean.ndim > 1 else [result.solutions]
        several = [x._replace(visible=x.visible[:, :n], hidden=x.visible[:, n:]) for x in several]
        parts["solutions"] = several if result.mean.ndim > 1 else several[0]
    beliefs = Beliefs(**parts)
    # Pending checks, and cached results of earlier ones.
    names = "_check", "_known_reasons", "_radius", "spectral_radius"
    beliefs.__dict__.update({k: value for k, value in result.__dict__.items() if k in names})
    return beliefs


def _joined(name, value, model):
    """Concatenate values of the units of both layers; None without any."""
    layers, sizes = model.layers, model.weights.shape
    parts = check.per_layer(name, value, sizes)
    if name == "clamp":
        parts = [as_states(name, *pair) for pair in zip(layers, parts, strict=True)]
    if all(part is None for part in parts):
        return None
    default = np.nan if name == "clamp" else 0.0
    parts = [np.full(n, default) if p is None else p for p, n in zip(parts, sizes, strict=True)]
    parts = [
        check.rows(name, part, n, np.float64, missing=name == "clamp")
        for part, n in zip(parts, sizes, strict=True)
    ]
    n_rows = check.common_rows([("visible", parts[0]), ("hidden", parts[1])])
    if n_rows is not None:
        parts = [np.broadcast_to(part, (n_rows, part.shape[-1])) for part in parts]
    return np.concatenate(parts, axis=-1)


def _products(machine, result, means):
    """Compute the expected products <v_i h_j> of visible and hidden units."""
    visible, hidden = (part.astype(np.float64) for part in means)
    out, n = visible[..., :, None] * hidden[..., None, :], visible.shape[-1]
    edges, pairs = result.edges, result.pairwise
    if pairs.shape[-1] == len(edges):
        first, second = edges.T
        out[..., first, second - len(column_sizes(machine.prior)) + hidden.shape[-1]] = pairs
        return out
    units = GraphUnits(machine)
    (unit, value, _), (_, a, b) = units.states, units.pairs
    at = (..., unit[a], unit[b] - n)
    out[at] = 0
    np.add.at(out, at, pairs * value[a] * value[b])
    return out
