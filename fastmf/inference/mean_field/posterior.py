"""The hidden layers of a deep machine, given its visible one."""

from typing import NamedTuple

from fastmf.inference.fixed_point import FixedPoint
from fastmf.inference.mean_field.gaussian_layers import collapsed_tap
from fastmf.models import DBM, RBM
from fastmf.models.dbm import machine_of
from fastmf.priors._rows import data_fields


class Posterior(NamedTuple):
    """Result of `posterior`."""

    model: RBM | DBM  # RBM or DBM: the machine without its visible layer
    # Solutions of that machine, one row for each row of data; `log_partition` is the log of the sum
    # over hidden states, without the prior of the visible ones.
    solutions: FixedPoint


def posterior(model, X, **options):
    """Mean-field solutions for the hidden layers of a deep machine, given data.

    Tramel et al. (2018), Appendix E: data enter as a field on the first hidden layer; their
    variance is zero, so that they add no Onsager term.
    """
    first, *above = model.couplings
    hidden = machine_of(above, model.layers[1:])
    return Posterior(
        hidden, collapsed_tap(hidden, field=data_fields(model.layers[0], X, first), **options)
    )
