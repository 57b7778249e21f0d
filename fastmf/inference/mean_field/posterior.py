"""The hidden layers of a deep machine, given its visible one."""

from typing import NamedTuple

from fastmf.inference.fixed_point import FixedPoint
from fastmf.inference.mean_field.tap import tap
from fastmf.models import DBM, RBM
from fastmf.models.dbm import machine_of


class Posterior(NamedTuple):
    """What `posterior` returns.

    Parameters
    ----------
    model : RBM or DBM
        The machine without its visible layer.
    solutions : FixedPoint
        Of that machine, one row for each of the data; `log_partition` is the log of the weight of
        the visible state without its own prior.
    """

    model: RBM | DBM
    solutions: FixedPoint


def posterior(model, X, **options):
    """Mean-field solutions for the hidden layers of a deep machine, given data.

    Parameters
    ----------
    model : DBM
        With two hidden layers at least.
    X : array of shape (n_rows, n_visible)
    **options
        Of `tap`.

    Returns
    -------
    Posterior

    Notes
    -----
    Tramel et al. (2018), Appendix E: data act on the first hidden layer as a field, and have no
    variance, hence no Onsager term.
    """
    first, *above = model.couplings
    hidden = machine_of(above, model.layers[1:])
    return Posterior(hidden, tap(hidden, field=X @ first, **options))
