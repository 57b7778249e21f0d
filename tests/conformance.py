"""scikit-learn's own checks of estimators."""

import pytest
from sklearn.pipeline import Pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator


def name_of(value):
    """The class of an estimator, the last one of a pipeline, or the name of a check."""
    value = value[-1] if isinstance(value, Pipeline) else value
    return type(value).__name__ if hasattr(value, "fit") else getattr(value, "func", value).__name__


def checks_of(estimators, expected_failures=lambda estimator: {}):
    """Parametrise a test by estimators and checks; failures are expected by name."""
    pairs = [
        pair
        for estimator in estimators
        for pair in estimator_checks_generator(
            estimator, expected_failed_checks=expected_failures(estimator), mark="xfail"
        )
    ]
    return pytest.mark.parametrize("estimator, check", pairs, ids=name_of)
