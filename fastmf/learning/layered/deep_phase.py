"""The phase of compiled steps that solves the hidden layers of deep machines given data."""

import numpy as np

from fastmf.inference.mean_field._rows import record_from
from fastmf.kernels.mean_field.arguments import EARLY_RESIDUAL, LATE_RESIDUAL
from fastmf.kernels.training import arguments as types
from fastmf.kernels.training import deep
from fastmf.learning.layered.general_step import hidden_layers
from fastmf.learning.layered.memory import solver_of
from fastmf.learning.layered.phases import DenseRows
from fastmf.models._layered import is_integrated
from fastmf.models.dbm import machine_of


class DeepRows(DenseRows):
    """Solutions for the hidden layers of a deep machine given dense rows.

    The hidden layers are a machine of their own, with packed couplings of its own.
    """

    kernels = deep.read_deep_rows, types.POSTERIOR, deep.collect_posterior

    @staticmethod
    def requires(problem):
        """Starts of deeper layers need no draws, and solutions given data are iterated."""
        model = problem.model
        hidden = machine_of(model.couplings[1:], model.layers[1:])
        return {
            "a gradient other than 'cd'": problem.settings.gradient != "cd",
            "no hidden Gaussian units that are integrated out": not is_integrated(hidden),
        }

    def __init__(self, run, arguments):
        super().__init__(run, arguments)
        hidden, layout = hidden_layers(run.problem.model, run.options), run.layouts[1]
        fields = np.zeros((run.n_batch, layout.n_units), run.dtype)
        state = np.zeros((4, *fields.shape), run.dtype)
        arguments |= {
            "posterior": record_from(state, hidden["max_iter"], False),
            "data_fields": fields,
            "columns": np.array([0, *(units.start for units in layout.bounds)], np.int64),
            "uncoupled": np.zeros((2, run.n_units), run.dtype),
        }
        options = {"early_residual": EARLY_RESIDUAL, "late_residual": LATE_RESIDUAL}
        options |= {"tol": hidden["tol"], "max_iter": hidden["max_iter"]}
        solver = solver_of(layout, max(1, run.problem.order), run.n_batch, run.n_workers, **options)
        tilt = solver.tilt._replace(field=fields)
        run.solvers[types.POSTERIOR] = solver._replace(tilt=tilt)
