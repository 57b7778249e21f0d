from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import fastmf as mf
from fastmf.evaluation.log_partition import LogPartitionEntry, LogPartitionReport
from fastmf.inference.mean_field.solutions import Solutions
from fastmf.plotting import (
    coefficient_forest,
    coupling_network,
    curves_by_epoch,
    edge_forest,
    free_energy_by_epoch,
    image_rows,
    log_partitions,
    receptive_fields,
)


@pytest.fixture(scope="module")
def machine():
    rng = np.random.default_rng(0)
    X = np.cumprod(np.where(rng.random((300, 4)) < [0.5, 0.2, 0.58, 0.9], 1, -1), axis=1)
    return mf.FullyVisibleBoltzmannMachine().fit(X)


def test_edges_of_a_machine_by_probability(machine):
    edges = machine.edge_inclusion()
    (ax,) = coupling_network(machine, minimum=0.2, layout="circle").axes
    pairs = np.triu_indices(4, 1)
    p, mean = edges.probability[pairs], edges.mean[pairs]
    drawn = np.flatnonzero(p >= 0.2)
    assert len(ax.lines) == len(drawn) >= 2
    by_size = drawn[np.argsort(abs(mean[drawn]))]
    for line, k in zip(ax.lines, by_size, strict=True):
        assert to_rgb(line.get_color()) == to_rgb("C3" if mean[k] > 0 else "C0")
        assert line.get_linewidth() == pytest.approx(5 * abs(mean[k]) / abs(mean[drawn]).max())
    alphas = [line.get_alpha() for line in ax.lines]
    np.testing.assert_allclose(alphas, 0.15 + 0.85 * (p[by_size] - 0.2) / 0.8)
    assert [text.get_text() for text in ax.texts] == ["x0", "x1", "x2", "x3"]
    at = ax.collections[0].get_offsets()
    np.testing.assert_allclose(np.hypot(*at.T), 1)
    ends = np.transpose(pairs)[by_size]
    for line, pair in zip(ax.lines, ends, strict=True):
        np.testing.assert_allclose(np.transpose(line.get_data()), at[pair])
    with pytest.raises(ValueError, match="all 4 units, got 2"):
        coupling_network(machine, names=["a", "b"])
    again = coupling_network(edges, minimum=0.2, layout="circle").axes[0]
    assert len(again.lines) == len(ax.lines)


def test_colours_of_qgraph(machine):
    colours = {}
    for chosen in (("red", "blue"), "qgraph"):
        (ax,) = coupling_network(machine, minimum=0.2, colours=chosen).axes
        colours[chosen] = [to_rgb(line.get_color()) for line in ax.lines]
    assert set(colours["red", "blue"]) == {to_rgb("red"), to_rgb("blue")}
    blue_and_red = {to_rgb("red"): to_rgb("#0000D5"), to_rgb("blue"): to_rgb("#BF0000")}
    assert colours["qgraph"] == [blue_and_red[colour] for colour in colours["red", "blue"]]
    with pytest.raises(ValueError, match='colours must be "qgraph" or two colours'):
        coupling_network(machine, colours="red")


def test_groups_have_colours_and_legends(machine):
    (ax,) = coupling_network(machine, groups=["mood", "sleep", "mood", "sleep"]).axes
    colours = ax.collections[0].get_facecolors()
    assert np.array_equal(colours[0], colours[2]) and not np.array_equal(colours[0], colours[1])
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert {"mood", "sleep", "positive", "negative"} <= set(labels)
    assert coupling_network(machine, legend=False).axes[0].get_legend() is None
    with pytest.raises(ValueError, match="groups must name all 4 units, got 1"):
        coupling_network(machine, groups=["mood"])


def test_springs_need_networkx(machine):
    try:
        import networkx  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(ImportError, match="networkx"):
            coupling_network(machine, layout="spring")
    else:
        at = coupling_network(machine, layout="spring").axes[0].collections[0].get_offsets()
        np.testing.assert_array_equal(
            at, coupling_network(machine, layout="spring").axes[0].collections[0].get_offsets()
        )
        near, far = np.hypot(*(at[0] - at[1])), np.hypot(*(at[0] - at[3]))
        assert near < far
    with pytest.raises(ValueError, match="layout"):
        coupling_network(machine, layout="grid")


def test_pairs_of_positions_have_no_sign():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (300, 3))
    X[:, 2] = np.where(rng.random(300) < 0.6, X[:, 0], X[:, 2])
    (ax,) = coupling_network(mf.PottsMachine().fit(X)).axes
    (line,) = ax.lines
    assert to_rgb(line.get_color()) == to_rgb("0.4")


def test_forest_has_intervals_in_order(machine):
    (ax,) = edge_forest(machine, level=0.9, n_top=4).axes
    low, high = np.moveaxis(4 * machine.confint(0.9)[0], -1, 0)
    segments = ax.collections[0].get_segments()
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert len(segments) == len(labels) == 4
    sizes = []
    for segment, label in zip(segments, labels, strict=True):
        i, j = (int(name) for name in label.split(" - "))
        np.testing.assert_allclose(segment[:, 0], [low[i, j], high[i, j]])
        sizes.append(abs(machine.couplings_[i, j]))
    assert sizes == sorted(sizes, reverse=True)
    with pytest.raises(ValueError, match="level"):
        edge_forest(machine, level=1)
    with pytest.raises(TypeError, match="machine"):
        edge_forest(machine.edge_inclusion())
    with pytest.raises(TypeError, match="edges must be a machine"):
        coupling_network(machine.test_couplings())


def test_forest_of_a_comparison_has_its_differences():
    rng = np.random.default_rng(1)
    chains = (np.cumprod(np.where(rng.random((400, 3)) < p, 1, -1), axis=1) for p in (0.6, 0.9))
    comparison = mf.compare_groups(*(mf.FullyVisibleBoltzmannMachine().fit(X) for X in chains))
    (ax,) = edge_forest(comparison, n_top=1).axes
    (segment,) = ax.collections[0].get_segments()
    i, j = (int(name[1:]) for name in ax.get_yticklabels()[0].get_text().split(" - "))
    assert abs(comparison.difference[i, j]) == abs(comparison.difference).max()
    np.testing.assert_allclose(np.diff(segment[:, 0]), 3.919928 * comparison.std[i, j], rtol=1e-5)


# --- coefficients ---------------------------------------------------------------------------------


VALUES, DEVIATIONS = np.array([0.1, -3.0, 2.0]), np.array([0.05, 0.5, 0.25])


def ticks(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


class Fitted:
    coef_, coef_var_ = VALUES[None], DEVIATIONS[None] ** 2
    inclusion_probability_ = np.array([0.9, 0.2, 1.0])
    feature_names_in_ = np.array(["a", "b", "c"], object)


def test_the_most_probable_coefficients_are_on_top():
    own = Figure().add_subplot()
    assert coefficient_forest(Fitted(), ax=own) is own.figure
    ax, bar = coefficient_forest(Fitted(), n_top=2).axes
    assert ticks(ax) == ["c", "a"] and ax.yaxis_inverted()
    bars, points = ax.collections
    np.testing.assert_array_equal(points.get_offsets(), [[2.0, 0], [0.1, 1]])
    np.testing.assert_array_equal(points.get_array(), [1.0, 0.9])
    np.testing.assert_allclose(
        bars.get_segments(), [[[1.5, 0], [2.5, 0]], [[0, 1], [0.2, 1]]], atol=1e-12
    )
    assert bar.get_ylabel() == "inclusion probability"
    assert ticks(coefficient_forest(Fitted(), names=["x", "y", "z"]).axes[0]) == ["z", "x", "y"]
    with pytest.raises(TypeError, match="model must be a spike-and-slab estimator"):
        coefficient_forest(VALUES)
    with pytest.raises(ValueError, match="all 3 coefficients, got 1"):
        coefficient_forest(Fitted(), names=["a"])
    with pytest.raises(ValueError, match="n_top"):
        coefficient_forest(Fitted(), n_top=0)


# --- solvers --------------------------------------------------------------------------------------


def test_log_partitions_have_bars_of_two_errors():
    report = LogPartitionReport(
        [
            LogPartitionEntry("exact", 2.0, None, 0.1, ""),
            LogPartitionEntry("AIS", 2.5, 0.25, 0.1, ""),
            LogPartitionEntry("none", -np.inf, None, 0.1, ""),
        ]
    )
    (ax,) = log_partitions(report).axes
    truth, points = ax.lines
    assert set(truth.get_xdata()) == {2.0}
    np.testing.assert_array_equal(points.get_xydata(), [[2.0, 0], [2.5, 1]])
    np.testing.assert_allclose(ax.collections[0].get_segments()[1], [[2.0, 1], [3.0, 1]])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["exact", "AIS", "none"]
    with pytest.raises(ValueError, match="empty"):
        log_partitions(LogPartitionReport())


# --- landscape ------------------------------------------------------------------------------------


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


# --- images ---------------------------------------------------------------------------------------


def test_receptive_fields_shows_the_strongest_first_on_a_symmetric_scale():
    weights = np.array([[0.0, 1.0, -3.0]] * 4)
    figure = receptive_fields(weights, (2, 2), n_fields=2, columns=2)
    (image,) = figure.axes[0].images
    np.testing.assert_array_equal(image.get_array()[:2, :2], -3)
    np.testing.assert_array_equal(image.get_array()[:2, 3:], 1)
    low, high = image.get_clim()
    assert low == -high < 0
    given = receptive_fields(weights, (2, 2), order=[0, 2], columns=2).axes[0].images[0].get_array()
    np.testing.assert_array_equal(given[:, :2], 0)
    np.testing.assert_array_equal(given[:, 3:], -3)
    with pytest.raises(ValueError, match="from 0 to 2"):
        receptive_fields(weights, (2, 2), order=[0, 3])
    low, high = receptive_fields(np.zeros((4, 3)), (2, 2)).axes[0].images[0].get_clim()
    assert low < high  # of an untrained machine


def test_image_rows_are_named():
    rng = np.random.default_rng(0)
    rows = {name: rng.random((5, 6)) for name in ("clean", "noisy", "denoised")}
    (ax,) = image_rows(rows, (2, 3)).axes
    assert ax.images[0].get_array().shape == (3 * 3 - 1, 5 * 4 - 1)
    np.testing.assert_array_equal(ax.images[0].get_array()[3:5, :3], rows["noisy"][0].reshape(2, 3))
    assert [label.get_text() for label in ax.get_yticklabels()] == list(rows)
    np.testing.assert_allclose(ax.get_yticks(), [0.5, 3.5, 6.5])
    assert ax.images[0].get_array().mask[2].all()
    with pytest.raises(ValueError, match=r"\(n_images, 6\) for images of 2 x 3 pixels"):
        image_rows({"clean": np.zeros((2, 5))}, (2, 3))
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
