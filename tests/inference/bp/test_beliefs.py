"""The result of belief propagation: axes of rows, assignments and objectives."""

import numpy as np
import pytest
from bp_models import loopy
from html_tables import shown

import fastmf as mf


def test_rows_lead_where_there_are_rows():
    model = loopy()
    options = {"pairwise": True}
    one = mf.belief_propagation(model, **options)
    rows = mf.belief_propagation(model, field=np.zeros((2, 9)), **options)
    assert one.mean[0].shape == (9,) and rows.mean[1].shape == (2, 7)
    assert one.messages.shape == one.pairwise.shape == (9, 7)
    assert rows.messages.shape == rows.pairwise.shape == (2, 9, 7)
    assert one.history.shape == (one.n_iter,) and rows.history.shape == (2, rows.n_iter.max())
    assert np.ndim(one.log_partition) == 0 and rows.log_partition.shape == (2,)
    assert isinstance(one.message, str) and rows.message.tolist() == [one.message] * 2
    for name in ("log_partition", "n_iter", "residual", "damping"):
        np.testing.assert_array_equal(getattr(rows, name), [getattr(one, name)] * 2)


@pytest.mark.parametrize("prior", [mf.Bernoulli, mf.Ising])
def test_tilts_give_the_means(prior):
    model = loopy(prior=prior)
    result = mf.belief_propagation(model)
    for layer, b, a, mean in zip(model.layers, result.b, result.a, result.mean, strict=True):
        np.testing.assert_allclose(layer.moments(b, a)[0], mean, atol=1e-12)


@pytest.mark.parametrize("prior", [mf.Bernoulli, mf.Ising])
def test_sum_product_decodes_the_more_probable_values(prior):
    low, high = prior.support
    result = mf.belief_propagation(loopy(prior=prior))
    assert result.objective is None and result.local_maximum is None
    for values, mean in zip(result.assignment, result.mean, strict=True):
        np.testing.assert_array_equal(values, np.where(mean > (low + high) / 2, high, low))


def test_the_objective_is_the_log_partition_of_a_decoder():
    model = loopy(scale=1.5)
    result = mf.most_probable(model)
    assert result.log_partition == result.objective
    assert result.objective == pytest.approx(-model.energy(*result.assignment), abs=1e-12)
    assert result.spectral_radius is None


def test_notebooks_show_what_was_decoded():
    model = mf.RBM(np.ones((3, 2)), mf.Bernoulli(np.zeros(3)), mf.Bernoulli(np.zeros(2)))
    title, (summary, _) = shown(mf.most_probable(model))
    rows = dict(summary)
    assert title == "Beliefs"
    assert rows["score"] == "6" and rows["local maxima"] == "1" and "damping" in rows
    _, (summary, _) = shown(mf.belief_propagation(model))
    assert "objective" not in dict(summary)
