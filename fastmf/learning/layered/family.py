"""Families of steps of RBMs and DBMs, as the training loop takes them."""

from fastmf.learning.layered.completion import completion
from fastmf.learning.layered.metrics import metrics
from fastmf.learning.layered.preconditioning import preparation
from fastmf.learning.layered.quasi_newton_steps import Objective, check_memory, take_step
from fastmf.learning.layered.state_check import check
from fastmf.learning.layered.step import Plan, settle
from fastmf.learning.training import trainer
from fastmf.learning.training.trainer import Family

# Quasi-Newton steps in an epoch: they take no longer than other steps from small batches.
STEPS_PER_EPOCH = 2


LAYERED_FAMILY = Family(
    Plan,
    metrics,
    "log_likelihood",
    "log-likelihood per unit",
    preparation,
    check,
    completion=completion,
    settle=settle,
)


def quasi_newton_family(X, weights, settings):
    """The family of quasi-Newton steps, each from all rows of some data; an epoch is one batch.

    The random order and the weights of the batch are not used.
    """
    objective = Objective(X, weights, settings.l2)

    def step(state, batch, rate, rng):
        for _ in range(STEPS_PER_EPOCH):
            take_step(state, objective)

    # Steps make new machines, so that the machine of an epoch is not changed by the next ones.
    changed = {
        "plan": lambda *arguments: step, "check": check_memory, "settle": lambda state: None
    }  # fmt: skip
    return LAYERED_FAMILY._replace(preparation=None, completion=None, **changed)


def train(model, X, settings, *, family=LAYERED_FAMILY, **options):
    """Train an RBM or DBM: `fastmf.learning.training.trainer.train` with its family."""
    return trainer.train(model, X, settings, family, **options)
