import numpy as np
import pytest
from matplotlib.figure import Figure

from fastmf.inference.mean_field.solutions import Solutions
from fastmf.plotting import (
    curves_by_epoch,
    free_energy_by_epoch,
    solution_map,
    solutions_and_data,
)


def some(n, n_starts=10):
    rng = np.random.default_rng(n)
    return Solutions(
        visible=rng.random((n, 6)),
        hidden=rng.random((n, 2)),
        free_energy=np.arange(n) - 8.0,
        log_partition=8.0 - np.arange(n),
        converged=np.ones(n, bool),
        members=np.arange(n_starts) % n,
    )


def test_free_energies_are_dots_and_numbers_a_curve():
    ax = free_energy_by_epoch([1, 5], [some(3), some(2)])
    first, second = (dots.get_offsets() for dots in ax.collections)
    np.testing.assert_allclose(first, [[1, -1], [1, -7 / 8], [1, -6 / 8]])
    assert len(second) == 2
    twin = next(other for other in ax.figure.axes if other is not ax)
    np.testing.assert_array_equal(twin.lines[0].get_xydata(), [[1, 3], [5, 2]])
    with pytest.raises(ValueError, match="one entry an epoch"):
        free_energy_by_epoch([1], [])


def test_curves_and_their_errors():
    own = Figure().add_subplot()
    ax = curves_by_epoch(
        [1, 2], {"TAP": [-3, -2], "AIS": [-3.1, -2.2]}, errors={"AIS": [0.1, 0.1]}, ax=own
    )
    assert ax is own
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["TAP", "AIS"]
    np.testing.assert_array_equal(ax.containers[1].lines[0].get_ydata(), [-3.1, -2.2])
    with pytest.raises(ValueError, match="'TAP'"):
        curves_by_epoch([1, 2], {"TAP": [1]})
    with pytest.raises(ValueError, match="at least one curve"):
        curves_by_epoch([1, 2], {})


def test_map_has_a_dot_for_each_solution_and_a_few_images(tmp_path):
    found = some(5)
    points = np.random.default_rng(0).random((5, 2))
    ax = solution_map(points, found, shape=(2, 3), n_images=3)
    np.testing.assert_allclose(ax.collections[0].get_offsets(), points)
    np.testing.assert_allclose(ax.collections[0].get_array(), found.free_energy / 8)
    images = [artist for artist in ax.artists if type(artist).__name__ == "AnnotationBbox"]
    assert len(images) == 3
    assert 3 * images[0].offsetbox.get_zoom() == 24  # points, of 2 x 3 pixels
    ax.figure.savefig(tmp_path / "map.png")
    with pytest.raises(ValueError, match="points"):
        solution_map(points[:4], found)


def test_data_follow_the_solution_they_lead_to():
    found = some(3, n_starts=7)
    X = np.random.default_rng(0).random((7, 6))
    ax = solutions_and_data(found, X, (2, 3), n_solutions=2, n_data=4)
    image = np.asarray(ax.images[0].get_array())
    np.testing.assert_allclose(image[:2, :3], found.visible[0].reshape(2, 3))
    np.testing.assert_allclose(image[:2, 4:7], X[0].reshape(2, 3))
    np.testing.assert_allclose(image[3:5, 8:11], X[4].reshape(2, 3))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["3 of 7", "2 of 7"]
    with pytest.raises(ValueError, match="7 rows"):
        solutions_and_data(found, X[:3], (2, 3))
