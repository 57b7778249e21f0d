from types import SimpleNamespace

import numpy as np
import pytest

from fastmf.plotting import image_rows, mosaic, receptive_fields


def test_mosaic_places_images_row_by_row():
    images = np.arange(3 * 6).reshape(3, 6)
    whole = mosaic(images, (2, 3), columns=2)
    assert whole.shape == (5, 7)
    np.testing.assert_array_equal(whole[:2, :3], images[0].reshape(2, 3))
    np.testing.assert_array_equal(whole[:2, 4:], images[1].reshape(2, 3))
    np.testing.assert_array_equal(whole[3:, :3], images[2].reshape(2, 3))
    assert np.isnan(whole[3:, 4:]).all()
    assert np.isnan(whole[2]).all() and np.isnan(whole[:, 3]).all()


@pytest.mark.parametrize("images", [np.zeros((2, 5)), np.zeros(6), np.zeros((0, 6))])
def test_mosaic_refuses_images_of_another_shape(images):
    with pytest.raises(ValueError, match=r"\(n_images, 6\) for images of 2 x 3 pixels"):
        mosaic(images, (2, 3), 2)


def test_receptive_fields_shows_the_strongest_first_on_a_symmetric_scale():
    weights = np.array([[0.0, 1.0, -3.0]] * 4)
    figure = receptive_fields(weights, (2, 2), n_fields=2, columns=2)
    (image,) = figure.axes[0].images
    np.testing.assert_array_equal(image.get_array()[:2, :2], -3)
    np.testing.assert_array_equal(image.get_array()[:2, 3:], 1)
    low, high = image.get_clim()
    assert low == -high < 0


def test_receptive_fields_in_a_given_order():
    weights = np.arange(8.0).reshape(4, 2)
    figure = receptive_fields(weights, (2, 2), order=[0, 1], columns=2)
    shown = figure.axes[0].images[0].get_array()
    np.testing.assert_array_equal(shown[:, :2], weights[:, 0].reshape(2, 2))
    np.testing.assert_array_equal(shown[:, 3:], weights[:, 1].reshape(2, 2))
    with pytest.raises(ValueError, match="from 0 to 1"):
        receptive_fields(weights, (2, 2), order=[0, 2])


def test_receptive_fields_of_an_untrained_machine():
    low, high = receptive_fields(np.zeros((4, 3)), (2, 2)).axes[0].images[0].get_clim()
    assert low < high


def test_image_rows_are_named():
    rng = np.random.default_rng(0)
    rows = {name: rng.random((5, 6)) for name in ("clean", "noisy", "denoised")}
    (ax,) = image_rows(rows, (2, 3)).axes
    assert ax.images[0].get_array().shape == (3 * 3 - 1, 5 * 4 - 1)
    np.testing.assert_array_equal(ax.images[0].get_array()[3:5, :3], rows["noisy"][0].reshape(2, 3))
    assert [label.get_text() for label in ax.get_yticklabels()] == list(rows)
    np.testing.assert_allclose(ax.get_yticks(), [0.5, 3.5, 6.5])


def test_image_rows_must_be_of_one_length():
    with pytest.raises(ValueError, match=r"one length, got lengths \[1, 2\]"):
        image_rows({"a": np.zeros((1, 4)), "b": np.zeros((2, 4))}, (2, 2))


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("name", ["weights_", "weights"])
def test_receptive_fields_of_estimators_and_models(deep, name):
    weights = np.random.default_rng(0).normal(size=(6, 3))
    value = (weights, np.ones((3, 2))) if deep else weights
    shown = receptive_fields(SimpleNamespace(**{name: value}), (2, 3)).axes[0].images[0]
    expected = receptive_fields(weights, (2, 3)).axes[0].images[0]
    np.testing.assert_array_equal(shown.get_array(), expected.get_array())
