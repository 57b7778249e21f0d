"""The layout of a model, made once."""

import threading
import weakref
from functools import cache

from fastmf._ahead import compile_ahead
from fastmf.inference.mean_field._grouped_layout import GroupedLayout
from fastmf.inference.mean_field._layout import Layout
from fastmf.kernels.tap import kernels_of_solve
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
    key = type(model), order, schedule
    kept, layout = _latest.model and _latest.model(), _latest.layout
    if _latest.key != key or kept is not model:
        _latest.model = None  # in case that what follows fails
        if kept is None and _latest.key == key and layout.fits(model):
            layout.refill(model)
        else:
            layout = (GroupedLayout if is_grouped(model) else Layout)(model, order, schedule)
        _latest.model, _latest.key, _latest.layout = weakref.ref(model), key, layout
    return layout


def is_grouped(model):
    """Whether there are groups of states among its units."""
    return any(has_groups(prior) for prior in getattr(model, "layers", ()))


@cache
def prepare_solve(dtype, order, grouped):
    """Let kernels of `tap` be compiled ahead, before functions of the units are.

    Parameters
    ----------
    dtype : NumPy dtype
    order : {1, 2, 3}
    grouped : bool
        Whether there are groups of states.
    """
    update = (GroupedLayout if grouped else Layout).update_of(order)
    compile_ahead(*kernels_of_solve(dtype, update))
