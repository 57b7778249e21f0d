"""scikit-learn's own checks of an estimator."""

import pytest
import sklearn
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Binarizer, KBinsDiscretizer
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import estimator_checks_generator

from fastmf.estimators import (
    ConditionalRBM,
    DeepBoltzmannMachine,
    FullyVisibleBoltzmannMachine,
    GeneralizedRBM,
    OrdinalMachine,
    PottsMachine,
    SpikeSlabClassifier,
    SpikeSlabRegressor,
)

SMALL = {"n_components": 2, "n_epochs": 1, "batch_size": 10, "random_state": 0}
# The checks are of the interface: one hidden layer has the kernels of an RBM, compiled already.
DEEP = SMALL | {"n_components": (2,), "visible": "gaussian", "pretraining_epochs": 1}

# The checks feed real numbers of any size, which Gaussian units take; machines of items take
# categories.
DISCRETE = KBinsDiscretizer(3, encode="ordinal", strategy="uniform")
ESTIMATORS = [
    GeneralizedRBM(visible="gaussian", **SMALL),
    DeepBoltzmannMachine(**DEEP),
    make_pipeline(Binarizer(), FullyVisibleBoltzmannMachine(l2=0.01)),
    make_pipeline(DISCRETE, PottsMachine(n_states=3, l2=0.01, l2_field=0.01)),
    make_pipeline(DISCRETE, OrdinalMachine(n_categories=3, l2=0.01, l2_field=0.01)),
    ConditionalRBM(2, objective="logistic", n_epochs=4, batch_size=10, learning_rate=0.1),
    SpikeSlabClassifier(slab_variance=1.0, inclusion_probability=0.5),
    SpikeSlabRegressor(noise_variance=0.09, slab_variance=1.0, inclusion_probability=0.3),
]
DRAWING = ESTIMATORS[0], ESTIMATORS[1], ESTIMATORS[5]


# Reasons of failures that are expected, and what the checks say in them.
DRAWN = "rows are drawn in proportion to their weights"
COPIED = "Pipeline.fit itself replaces the parameter `steps` by a copy"
DRAWN_CHECKS = [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")]
COPIED_CHECKS = ["check_estimators_overwrite_params", "check_dont_overwrite_parameters"]


def expected_failures(estimator):
    """Failures of Pipelines, and one of estimators that draw rows by their weights."""
    if isinstance(estimator, Pipeline):
        return dict.fromkeys(COPIED_CHECKS, COPIED)
    if isinstance(estimator, SpikeSlabClassifier) and sklearn.__version__.startswith("1.6."):
        # It makes three classes two by the first label, of shuffled rows another one.
        return {DRAWN_CHECKS[0]: "the weighted rows have other labels"}
    return dict.fromkeys(DRAWN_CHECKS, DRAWN) if estimator in DRAWING else {}


def name_of(value):
    """The class of an estimator, the last one of a pipeline, or the name of a check."""
    value = value[-1] if isinstance(value, Pipeline) else value
    return type(value).__name__ if hasattr(value, "fit") else getattr(value, "func", value).__name__


CHECKS = [
    pair
    for estimator in ESTIMATORS
    for pair in estimator_checks_generator(
        estimator, expected_failed_checks=expected_failures(estimator), mark="xfail"
    )
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
# The checks' data are few, and separated.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator, check", CHECKS, ids=name_of)
def test_conformance(estimator, check):
    check(estimator)


@pytest.mark.parametrize("check", DRAWN_CHECKS)
@pytest.mark.parametrize("estimator", DRAWING, ids=name_of)
def test_weights_are_taken_though_they_are_not_repetitions(estimator, check):
    """A failure of another kind, such as a TypeError, must not pass for the expected one."""
    with pytest.raises(AssertionError, match="fitting with removed or repeated data points"):
        getattr(estimator_checks, check)(type(estimator).__name__, clone(estimator))
