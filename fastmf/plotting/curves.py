"""Curves of learning, free energies of solutions by epoch, and log-partitions of a model."""

from collections.abc import Mapping

import numpy as np

from fastmf._common.arguments import real_array
from fastmf.plotting._axes import axes, drawing, mapping, tidy, with_attributes

# What a history holds, and the name of its axis.
_METRICS = {
    "log_likelihood": "log-likelihood per unit (nats)",
    "accuracy": "fraction of correct labels",
    "objective": "log-pseudo-likelihood less penalties",
}


@drawing
def learning_curve(history, *, label=None, ax=None):
    """Log-likelihood, or accuracy, by epoch or iteration of a fit; dashed for validation data.

    Parameters
    ----------
    history : fitted estimator, dict of lists, or array of shape (n_iter,)
        An estimator with the attribute `history_`, or the value of that attribute: "epoch",
        "log_likelihood" per unit, or "accuracy" of labels, and perhaps "validation_log_likelihood"
        or "validation_accuracy"; of machines without hidden units, the objective after each
        iteration.
    label : str, optional
        Name of the machine in the legend, to compare several on one `ax`.
    %(ax)s

    Examples
    --------
    >>> import fastmf as mf
    >>> history = {"epoch": [1, 2, 3], "log_likelihood": [-0.6, -0.4, -0.3]}
    >>> figure = mf.plotting.learning_curve(history, label="TAP")
    >>> figure.axes[0].get_xlabel()
    'epoch'
    >>> X = mf.datasets.load_digits(binary=True).X
    >>> rbm = mf.GeneralizedRBM(8, n_epochs=2, random_state=0).fit(X)
    >>> figure = mf.plotting.learning_curve(rbm)
    """
    history, by = getattr(history, "history_", history), "epoch"
    if isinstance(history, list | np.ndarray):
        by, history = "iteration", {"objective": history}
        history["iteration"] = np.arange(1, len(history["objective"]) + 1)
    if not isinstance(history, Mapping):
        raise TypeError(
            "history must be a fitted estimator with history_, a dict or an array, got "
            f"{type(history).__name__}."
        )
    metric = next((name for name in _METRICS if name in history), None)
    if metric is None or by not in history:
        raise ValueError(
            f"history must have 'epoch' and 'log_likelihood' or 'accuracy', got {sorted(history)}."
        )
    steps, validation = real_array(by, history[by]), f"validation_{metric}"
    dashed = history.get(validation) is not None
    curves = [(metric, "-", label or ("training data" if by == "epoch" else None))]
    curves += [(validation, "--", None if label else "validation data")] * dashed
    ax, colour = axes(ax, (6, 4)), None
    for name, style, text in curves:
        values = real_array(name, history[name])
        if values.shape != steps.shape or values.ndim != 1:
            raise ValueError(
                f"{name} must be one-dimensional and as long as {by}, got shapes {values.shape} "
                f"and {steps.shape}."
            )
        colour = ax.plot(steps, values, style, color=colour, label=text)[0].get_color()
    if by == "epoch" or label:
        ax.legend(frameon=False, title="dashed: validation data" if label and dashed else None)
    return tidy(ax, by, _METRICS[metric])


@drawing
def curves_by_epoch(epoch, curves, *, errors=None, label="nats per unit", ax=None):
    """Several measures by epoch or another number, such as likelihoods by TAP and by annealing.

    Parameters
    ----------
    epoch : array of shape (n_epochs,)
    curves : dict of str to array of shape (n_epochs,)
    errors : dict of str to array of shape (n_epochs,), optional
        Standard errors of some of them.
    label : str, default "nats per unit"
        Label of the vertical axis.
    %(axes)s

    Examples
    --------
    >>> import fastmf as mf
    >>> axes = mf.plotting.curves_by_epoch([1, 2], {"TAP": [-0.5, -0.4], "AIS": [-0.6, -0.5]})
    >>> axes.get_ylabel()
    'nats per unit'
    """
    ax, epoch = axes(ax, (6, 4)), real_array("epoch", epoch)
    errors = {} if errors is None else mapping("errors", errors)
    for name, values in mapping("curves", curves, "curve").items():
        values = real_array(f"curves[{name!r}]", values)
        if np.shape(values) != np.shape(epoch):
            raise ValueError(
                f"curves[{name!r}] must have one value an epoch, got shapes {np.shape(values)} "
                f"and {np.shape(epoch)}."
            )
        ax.errorbar(epoch, values, errors.get(name), label=name, marker=".", capsize=2)
    ax.xaxis.get_major_locator().set_params(integer=epoch.dtype.kind in "iu")
    ax.legend(frameon=False)
    tidy(ax, "epoch", label)
    return ax


@drawing
def free_energy_by_epoch(epoch, solutions, *, ax=None):
    """Free energies of the distinct solutions, epoch by epoch, and how many there are.

    Parameters
    ----------
    epoch : array of shape (n_epochs,)
    solutions : sequence of Solutions
        One for each epoch, from `fastmf.evaluation.solutions`.
    %(axes)s
        Its dots are solutions, larger if more starts led to them; on a second vertical axis their
        number.

    Notes
    -----
    As in the figures on landscapes of Tramel et al. (2018), section VII.3.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> ferromagnet = mf.BoltzmannMachine(3 * (1 - np.eye(16)) / 16, mf.Ising(np.zeros(16)))
    >>> starts = np.where(np.random.default_rng(0).random((40, 16)) < 0.5, 1.0, -1.0)
    >>> found = mf.evaluation.solutions(ferromagnet, starts)
    >>> axes = mf.plotting.free_energy_by_epoch([1], [found])
    >>> axes.get_ylabel()
    'free energy per unit (nats)'
    """
    epoch = np.atleast_1d(real_array("epoch", epoch))
    for one in with_attributes("solutions", solutions, "sequence", "__len__", "__iter__"):
        with_attributes("solutions", one, "sequence of Solutions", "free_energy", "visible")
    if len(epoch) != len(solutions) or not len(epoch):
        raise ValueError(
            f"solutions must have one entry an epoch, got {len(solutions)} for {len(epoch)} epochs."
        )
    ax = axes(ax, (6, 4))
    for when, one in zip(epoch, solutions, strict=True):
        n_hidden = 0 if one.hidden is None else one.hidden.shape[1]
        per_unit = one.free_energy / (one.visible.shape[1] + n_hidden)
        style = {"s": 8 + 8 * np.sqrt(one.counts), "color": "C0", "alpha": 0.35, "linewidths": 0}
        ax.scatter(np.full(len(per_unit), when), per_unit, **style)
    ax.xaxis.get_major_locator().set_params(integer=True)
    tidy(ax, "epoch", "free energy per unit (nats)")
    second = ax.twinx()
    second.plot(epoch, [len(one.free_energy) for one in solutions], color="C1")
    second.set_ylabel("distinct solutions", color="C1")
    second.set_yscale("log")
    second.spines[["top"]].set_visible(False)
    return ax


@drawing
def log_partitions(report, *, ax=None):
    """Log-partitions of one model by several methods, with bars of two standard errors.

    Parameters
    ----------
    report : LogPartitionReport
        Report of `fastmf.evaluation.log_partition_report`. The vertical line is its first entry:
        the exact value, if there is one.
    %(ax)s

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> model = mf.RBM(np.zeros((3, 2)), mf.Ising(np.zeros(3)), mf.Ising(np.zeros(2)))
    >>> report = mf.evaluation.log_partition_report(model, n_chains=10, n_steps=10)
    >>> figure = mf.plotting.log_partitions(report)
    >>> figure.axes[0].get_yticklabels()[0].get_text()
    'exact'
    """
    with_attributes("report", report, "LogPartitionReport", "__len__", "__getitem__")
    for entry in report:
        with_attributes("report", entry, "LogPartitionReport", "log_partition", "error", "name")
    if not len(report):
        raise ValueError("the report is empty.")
    rows = np.arange(len(report))
    values = np.array([entry.log_partition for entry in report], float)
    errors = np.array([entry.error or 0.0 for entry in report], float)
    finite = np.isfinite(values) & np.isfinite(errors)
    ax = axes(ax, (6, 1 + 0.3 * len(report)))
    if finite[0]:
        ax.axvline(values[0], color="0.6", linestyle=":", zorder=0)
    ax.errorbar(values[finite], rows[finite], xerr=2 * errors[finite], fmt="o", ecolor="0.5")
    ax.set_yticks(rows, [entry.name for entry in report])
    ax.set_ylim(len(report) - 0.5, -0.5)
    return tidy(ax, "log-partition (nats)", "estimate")
