"""The layout of a model, made once."""

import threading
import weakref

from scipy.sparse import issparse

from fastmf.inference.mean_field._grouped_layout import GroupedLayout
from fastmf.inference.mean_field._layout import Layout
from fastmf.inference.mean_field._sparse_layout import SparseLayout
from fastmf.models.boltzmann import check_machine
from fastmf.priors._groups import has_groups


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
    key = type(model), order, schedule
    kept, layout = _latest.model and _latest.model(), _latest.layout
    if _latest.key != key or kept is not model:
        _latest.model = None  # in case that what follows fails
        kind = _kind_of(model)
        unused = kept is None and _latest.key == key and type(layout) is kind
        if unused and layout.fits(model):
            layout.refill(model)
        else:
            layout = kind(model, order, schedule)
        _latest.model, _latest.key, _latest.layout = weakref.ref(model), key, layout
    return layout


def handed_over(layout, model, in_place):
    """Let the latest layout be that of a model after a step of learning, whose couplings it has.

    It has the parameters of the units, too, if these moved in place.
    """
    if not in_place:
        layout.set_units(model.layers)
    _latest.model = weakref.ref(model)


def _kind_of(model):
    if issparse(model.couplings):
        return SparseLayout
    return GroupedLayout if is_grouped(model) else Layout


def is_grouped(model):
    """Whether there are groups of states among its units."""
    return any(has_groups(prior) for prior in getattr(model, "layers", ()))
