"""The layout of a model, made once."""

import threading
import weakref

from fastmf._common.rows import is_sparse
from fastmf.inference.mean_field._grouped_layout import GroupedLayout
from fastmf.inference.mean_field._layout import Layout
from fastmf.inference.mean_field._sparse_layout import SparseLayout
from fastmf.models.boltzmann import check_machine
from fastmf.priors._groups import has_groups
from fastmf.priors._protocol import has_third_cumulant


class _Latest(threading.local):
    """The last layouts that a thread asked for, with their models, by kind of model and options."""

    def __init__(self):
        self.entries = {}


_latest = _Latest()


def layout_of(model, order, schedule):
    """The layout of a model, kept until others are asked for: its parameters do not change.

    A model that is no longer in use, such as the model of the last step of learning, leaves its
    memory to a model of the same shape.
    """
    check_machine(model)
    if order == 3 and not all(map(has_third_cumulant, model.layers)):
        raise ValueError(
            "order=3 needs binary units (Bernoulli or Ising) in every layer: use order=2 for units "
            "of more values."
        )
    key = type(model), order, schedule
    reference, layout = _latest.entries.pop(key, (None, None))
    last = reference and reference()
    if reference is None or last is not model:
        kind = _kind_of(model)
        if reference and last is None and type(layout) is kind and layout.fits(model):
            layout.refill(model)
        else:
            layout = kind(model, order, schedule)
    # Two, since learning alternates between a deep machine and its hidden layers.
    entries = [*_latest.entries.items(), (key, (weakref.ref(model), layout))]
    _latest.entries = dict(entries[-2:])
    if not layout.sparse:  # whose units are in another order
        layout.priors = model.layers
    return layout


def handed_over(layout, model, in_place):
    """Assign a layout to a model after a step of learning.

    It has the parameters of the units already if these moved in place.
    """
    layout.fill(model)
    if not in_place:
        layout.set_units(model.layers)
    for key, (_, stored) in _latest.entries.items():
        if stored is layout:
            _latest.entries[key] = weakref.ref(model), layout


def layout_of_checks(model):
    """A layout whose units are in the order of `model.bipartite()`, or of a fully visible model."""
    schedule = "sequential" if is_sparse(getattr(model, "couplings", None)) else "blocked"
    return layout_of(model, 1, schedule)


def _kind_of(model):
    if is_sparse(model.couplings):
        return SparseLayout
    return GroupedLayout if is_grouped(model) else Layout


def is_grouped(model):
    """Whether there are groups of states among its units."""
    return any(has_groups(prior) for prior in getattr(model, "layers", ()))
