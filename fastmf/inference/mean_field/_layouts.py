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
    """The last layout that a thread asked for."""

    model, key, layout = None, None, None


_latest = _Latest()


def layout_of(model, order, schedule):
    """The layout of a model, kept until another is asked for: its parameters do not change.

    A model that is no longer in use, as that of the last step of learning, leaves its memory to one
    of the same shape.
    """
    check_machine(model)
    if order == 3 and not all(map(has_third_cumulant, model.layers)):
        raise ValueError(
            "order=3 needs binary units (Bernoulli or Ising) in every layer: use order=2 for units "
            "of more values."
        )
    key = type(model), order, schedule
    last, layout = _latest.model and _latest.model(), _latest.layout
    if _latest.key != key or last is not model:
        _latest.model = None  # in case that what follows fails
        kind = _kind_of(model)
        unused = last is None and _latest.key == key and type(layout) is kind
        if unused and layout.fits(model):
            layout.refill(model)
        else:
            layout = kind(model, order, schedule)
        _latest.model, _latest.key, _latest.layout = weakref.ref(model), key, layout
    if not layout.sparse:  # whose units are in another order
        layout.priors = model.layers
    return layout


def handed_over(layout, model, in_place):
    """Let the latest layout be that of a model after a step of learning.

    It has the parameters of the units already if these moved in place.
    """
    layout.fill(model)
    if not in_place:
        layout.set_units(model.layers)
    _latest.model = weakref.ref(model)


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
