"""Cases of belief propagation for rows that share couplings."""

import numpy as np

from fastmf.kernels.messages import MAX, MIXED, SUM
from kernel_cases.case import Case, chosen
from kernel_cases.machines import rbm


def arguments_of(algorithm):
    """A builder of arguments of `messages`."""

    def build(size, dtype, rows=None):
        model, rng = rbm(size, dtype), np.random.default_rng(3)
        rows = chosen(rows, size.n_rows)
        fields = [
            rng.normal(size=(size.n_rows, n)).astype(dtype)[rows] for n in model.weights.shape
        ]
        n_groups = min(3, len(rows))
        return (
            np.exp(model.weights), *fields, algorithm, 5, 20, 30.0, n_groups, np.zeros(1, np.int64),
            np.zeros((len(rows), size.n_visible)), np.zeros((len(rows), size.n_hidden)),
            np.zeros(len(rows)), np.zeros(len(rows)), np.zeros((n_groups, *model.weights.shape)),
        )  # fmt: skip

    return build


def results(arguments):
    """What rows get; sums over rows are compared in tests of the kernel."""
    names = "visible", "hidden", "log_partition", "residual"
    return dict(zip(names, arguments[-5:-1], strict=True))


CASES = [
    Case("messages.messages", name, arguments_of(algorithm), results,
         {"float64": 1e-10, "float32": 1e-2 if name != "sum" else 2e-3}, large=name == "sum")
    for name, algorithm in (("sum", SUM), ("max", MAX), ("mixed", MIXED))
]  # fmt: skip
