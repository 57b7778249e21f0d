"""The third order of models with groups, at any means: against sums over all states."""

import numpy as np
import pytest
from group_models import FOUR, MODELS, ORDERS, MatrixForm

from fastmf.inference.mean_field import _grouped_third_order as third_order
from fastmf.inference.mean_field._layouts import layout_of
from fastmf.priors._groups import groups


@pytest.mark.parametrize("name", [name for name, order in ORDERS if order == 3])
def test_pairs_and_fields_are_those_of_the_matrix_form(name):
    model, rng = MODELS[name], np.random.default_rng(0)
    layout, form = layout_of(model, 3, "blocked"), MatrixForm(model)
    parts = [p.moments(rng.normal(size=p.moments(0.0, 0.0)[0].shape), 0.0)[0] for p in model.layers]
    means = layout.join([part[None] for part in parts], np.zeros((1, layout.n_units)))
    third = third_order.third_cumulants(model, layout, means)
    found = [third_order.third_order(layout, k, means, third) for k in range(len(parts))]
    pairs = sum(pairs[0] for _, pairs in found)
    assert pairs == pytest.approx(form.third_order(np.concatenate(parts)), rel=1e-11)
    expected = form.third_order_fields(np.concatenate(parts))
    for (fields, _), (prior, at) in zip(found, form.layers, strict=True):
        difference = fields[0] - expected[at]
        for group in groups(prior):  # up to a number for each group
            difference[group] -= difference[group].mean()
        np.testing.assert_allclose(difference, 0, atol=1e-12)


def test_moments_of_the_field_of_a_group_are_those_of_draws():
    rng = np.random.default_rng(1)
    mean, weights = rng.dirichlet(np.ones(4), size=3), rng.normal(size=(4, 2))
    s, v, third = third_order.moments_of_field(mean, weights)
    for i, m in enumerate(mean):
        d = weights - m @ weights
        np.testing.assert_allclose(s[i], m @ weights)
        np.testing.assert_allclose(v[i], m @ d**2)
        np.testing.assert_allclose(third[i], m @ d**3, atol=1e-14)


def test_centred_couplings_average_to_zero_over_either_group():
    rng = np.random.default_rng(2)
    mean, other = rng.dirichlet(np.ones(4), size=3), rng.dirichlet(np.ones(5), size=3)
    centred = third_order.centred(rng.normal(size=(4, 5)), mean, other)
    np.testing.assert_allclose(np.einsum("ra,rab->rb", mean, centred), 0, atol=1e-14)
    np.testing.assert_allclose(np.einsum("rb,rab->ra", other, centred), 0, atol=1e-14)


def test_groups_have_no_third_cumulant_of_their_own():
    mean = FOUR.moments(0.0, 0.0)[0][None]
    np.testing.assert_array_equal(third_order.third_cumulant(FOUR, mean), 0)
