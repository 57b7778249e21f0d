"""The log-partition of models with groups of states: errors and bounds beside exact sums."""

import numpy as np
from group_models import MODELS, every_order

import fastmf as mf
from fastmf.models._layered import Layered


@every_order
def test_error_falls_with_the_couplings(name, order):
    model = MODELS[name]

    def scaled(scale):
        couplings = tuple(scale * w for w in model.couplings)
        return model.rebuilt(couplings, model.layers)

    if not isinstance(model, Layered):

        def scaled(scale):
            return mf.BoltzmannMachine(scale * model.couplings, model.prior)

    errors = []
    for scale in (0.1, 0.05):
        smaller = scaled(scale)
        found = mf.tap(smaller, order=order, tol=1e-14, max_iter=3000).log_partition
        errors.append(abs(found - mf.exact(smaller, averages=False).log_partition))
    assert np.log2(errors[0] / errors[1]) > order + 0.6


def test_naive_mean_field_is_a_lower_bound():
    for model in MODELS.values():
        assert mf.tap(model, order=1).log_partition < mf.exact(model).log_partition
