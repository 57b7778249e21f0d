"""scikit-learn's own checks of an estimator."""

import pytest
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fastmf.estimators import ConditionalRBM, GeneralizedRBM

SMALL = {"n_components": 3, "n_epochs": 2, "batch_size": 10, "random_state": 0}

# The checks feed real numbers of any size. Gaussian units take them as they are; Bernoulli units
# take values in [0, 1] and refuse others, so that they are checked behind a scaler.
ESTIMATORS = [
    GeneralizedRBM(visible="gaussian", **SMALL),
    make_pipeline(MinMaxScaler(clip=True), GeneralizedRBM(**SMALL)),
    ConditionalRBM(3, n_epochs=20, batch_size=10, n_sweeps=5, random_state=0),
]


def expected_failures(estimator):
    """scikit-learn expects the same two failures of every Pipeline."""
    if not isinstance(estimator, Pipeline):
        return {}
    reason = "Pipeline.fit itself replaces the parameter `steps` by a copy"
    return dict.fromkeys(
        ("check_estimators_overwrite_params", "check_dont_overwrite_parameters"), reason
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_conformance(estimator, check):
    check(estimator)
