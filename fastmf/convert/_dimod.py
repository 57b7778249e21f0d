"""Binary quadratic models of dimod."""

import numpy as np

from fastmf._common.arguments import number
from fastmf.convert._converted import (
    Converted,
    check_machine,
    finite,
    imported,
    names_of_units,
    sparse_couplings,
)
from fastmf.models._graph import pairwise_graph
from fastmf.models.boltzmann import BoltzmannMachine
from fastmf.priors.binary import Bernoulli, Ising

_UNITS = {"SPIN": (Ising, [-1, 1]), "BINARY": (Bernoulli, [0, 1])}


def from_dimod(model, *, beta=1.0):
    """A machine of the Boltzmann distribution of a binary quadratic model.

    Parameters
    ----------
    model : dimod.BinaryQuadraticModel
        Or any object with its attributes variables, linear, quadratic, offset and vartype.
    beta : float, default 1
        Inverse temperature: p(x) is proportional to exp(-beta E(x)).

    Returns
    -------
    Converted
        Ising units for spins, Bernoulli units for binary variables; the offset in `log_factor`.

    Raises
    ------
    TypeError
        If the object lacks one of these attributes, or a bias is no number.
    ValueError
        If the variables are of another kind, there are none, or a bias is not finite.

    Examples
    --------
    >>> import types
    >>> import fastmf as mf
    >>> quadratic = types.SimpleNamespace(
    ...     variables=["a", "b"], linear={"a": 0.5, "b": 0.0}, quadratic={("a", "b"): -1.0},
    ...     offset=0.0, vartype="SPIN",
    ... )
    >>> converted = mf.convert.from_dimod(quadratic)
    >>> converted.names, converted.model.couplings.toarray().tolist()
    (['a', 'b'], [[0.0, 1.0], [1.0, 0.0]])
    >>> converted.model.prior.field.tolist()
    [-0.5, -0.0]
    """
    beta = number("beta", beta, 0, np.finfo(float).max)
    try:
        names, linear = list(model.variables), model.linear
        quadratic, offset, vartype = model.quadratic.items(), model.offset, model.vartype
    except AttributeError as error:
        raise TypeError(
            f"model must be a dimod.BinaryQuadraticModel, got {type(model).__name__}: {error}."
        ) from error
    kind = getattr(vartype, "name", vartype)
    if kind not in _UNITS:
        raise ValueError(f"the variables must be SPIN or BINARY, got {kind!r:.40}.")
    if not names:
        raise ValueError("model must have variables, got none.")
    class_, states = _UNITS[kind]
    unit = {name: k for k, name in enumerate(names)}
    field = np.array([-beta * finite("the bias", linear[name], name) for name in names])
    pairs = [(unit[a], unit[b], finite("the bias", bias, (a, b))) for (a, b), bias in quadratic]
    rows, columns, biases = np.array(pairs, float).reshape(-1, 3).T
    couplings = sparse_couplings(rows.astype(int), columns.astype(int), -beta * biases, len(names))
    machine = BoltzmannMachine(couplings, class_(field))
    log_factor = -beta * finite("the offset", offset, "model")
    return Converted(machine, names, [list(states) for _ in names], log_factor)


def to_dimod(model, names=None, *, beta=1.0, log_factor=0.0):
    """The binary quadratic model with the Boltzmann distribution of a machine.

    Parameters
    ----------
    model : BoltzmannMachine
        Ising or Bernoulli units.
    names : sequence, optional
        Variable of each unit; default 0, 1, ...
    beta : float, default 1
        Inverse temperature: the machine's energies are divided by it.
    log_factor : float, default 0
        Logarithm of a constant factor, which becomes the offset.

    Returns
    -------
    dimod.BinaryQuadraticModel

    Raises
    ------
    ImportError
        If dimod is not installed.
    TypeError
        If the model is of another class.
    ValueError
        If the units are of another kind, or names are too few or not unique.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> machine = mf.BoltzmannMachine([[0.0, 0.5], [0.5, 0.0]], mf.Ising(np.zeros(2)))
    >>> mf.convert.to_dimod(machine, ["a", "b"])  # doctest: +SKIP
    BinaryQuadraticModel({'a': 0.0, 'b': 0.0}, {('b', 'a'): -0.5}, -0.0, 'SPIN')
    """
    check_machine(model)
    beta = number("beta", beta, np.finfo(float).tiny, np.finfo(float).max)
    kinds = [kind for kind, (class_, _) in _UNITS.items() if isinstance(model.prior, class_)]
    if not kinds:
        raise ValueError(
            f"model must have Ising or Bernoulli units, got {type(model.prior).__name__}."
        )
    names, graph = names_of_units(model, names), pairwise_graph(model)
    linear = dict(zip(names, (-model.prior.field / beta).tolist(), strict=True))
    pairs = zip(graph.edges.tolist(), (-graph.values / beta).tolist(), strict=True)
    quadratic = {(names[i], names[j]): value for (i, j), value in pairs}
    dimod = imported("dimod", "to_dimod")
    made = dimod.BinaryQuadraticModel(linear, {}, -log_factor / beta, kinds[0])
    made.add_quadratic_from(quadratic)  # afterwards: variables keep the order of the units
    return made
