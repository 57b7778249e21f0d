import numpy as np
import pytest
from matplotlib.colors import to_rgb

import fastmf as mf
from fastmf.plotting import coupling_network, edge_forest


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


def test_groups_have_colours_and_legends(machine):
    (ax,) = coupling_network(machine, groups=["mood", "sleep", "mood", "sleep"]).axes
    colours = ax.collections[0].get_facecolors()
    assert np.array_equal(colours[0], colours[2]) and not np.array_equal(colours[0], colours[1])
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert {"mood", "sleep", "positive", "negative"} <= set(labels)
    assert coupling_network(machine, legend=False).axes[0].get_legend() is None
    with pytest.raises(ValueError, match="all 4 units, got 1"):
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
