import itertools

import numpy as np
import pytest
from scipy.sparse import coo_array

import fastmf as mf
from fastmf.evaluation import effective_couplings


def planted(n_visible, n_hidden, strength):
    """Two patterns far apart, so that mean-field solutions are phases."""
    rng = np.random.default_rng(0)
    left = rng.choice([-1, 1], (n_visible, 2))
    right = rng.choice([-1, 1], (n_hidden, 2))
    weights = strength * left @ right.T / np.sqrt(n_visible * n_hidden)
    return mf.RBM(weights, mf.Ising(np.zeros(n_visible)), mf.Ising(np.zeros(n_hidden)))


def test_all_methods_side_by_side():
    model = planted(60, 10, 2.5)
    report = mf.evaluation.log_partition_report(model, n_chains=100, n_steps=300)
    truth = mf.exact(model).log_partition
    names = [entry.name for entry in report]
    assert names[:3] == ["exact", "AIS", "reverse AIS"]
    assert report["exact"].log_partition == pytest.approx(truth, rel=1e-13)
    for name in ("AIS", "reverse AIS"):
        assert abs(report[name].log_partition - truth) < 4 * report[name].error + 0.02
    for method in ("NMF", "TAP2", "TAP3"):
        largest, mean, total = (
            report[f"{method}, {kind}"].log_partition for kind in ("largest", "mean", "log-sum-exp")
        )
        assert mean <= largest <= total
    assert report["NMF, largest"].log_partition <= truth
    assert abs(report["TAP2, log-sum-exp"].log_partition - truth) < 0.5
    text = str(report)
    assert len(text.splitlines()) == 1 + len(report)
    assert "reverse AIS" in text
    with pytest.raises(KeyError, match="no entry 'BP'"):
        report["BP"]


def test_real_units_have_no_third_order_and_large_layers_no_enumeration():
    rng = np.random.default_rng(0)
    visible = mf.TruncatedGaussian(np.zeros(30), -1.0, 0.0, 1.0)
    model = mf.RBM(rng.normal(size=(30, 21)) / 5, visible, mf.Bernoulli(np.zeros(21)))
    X = rng.random((20, 30))
    report = mf.evaluation.log_partition_report(model, X, n_chains=50, n_steps=100)
    names = {entry.name for entry in report}
    assert {"AIS", "TAP2, mean"} <= names
    assert not {"exact", "TAP3, mean"} & names
    ais = report["AIS"]
    assert abs(report["TAP2, log-sum-exp"].log_partition - ais.log_partition) < 0.1
    with pytest.raises(ValueError, match="at most 20"):
        mf.evaluation.log_partition_report(model, X, n_chains=5, n_steps=5, include_exact=True)


@pytest.mark.slow
def test_targets_at_real_size():
    """The sandwich closes to half a nat, and TAP comes within one, on a machine of 784 x 100."""
    rng = np.random.default_rng(0)
    X = (rng.random((2000, 784)) < rng.random((10, 784))[rng.integers(10, size=2000)]).astype("f")
    rbm = mf.GeneralizedRBM(100, n_epochs=5, random_state=0).fit(X)
    report = mf.evaluation.log_partition_report(rbm.model_, X[:200])
    ais = report["AIS"].log_partition
    assert abs(ais - report["reverse AIS"].log_partition) < 0.5
    assert abs(ais - report["TAP2, log-sum-exp"].log_partition) < 1


def test_estimates_are_shown_as_they_come(capsys):
    model = mf.RBM(np.ones((3, 2)) / 9, mf.Ising(np.zeros(3)), mf.Ising(np.ones(2)))
    options = {"n_chains": 10, "n_steps": 10, "include_exact": True}
    report = mf.evaluation.log_partition_report(model, **options, verbose=True)
    shown = capsys.readouterr().err.splitlines()
    assert [line[:26].rstrip() for line in shown] == [entry.name for entry in report]
    values = [float(line[26:38]) for line in shown]
    np.testing.assert_allclose(values, [entry.log_partition for entry in report], atol=6e-4)
    mf.evaluation.log_partition_report(model, **options)
    assert capsys.readouterr().err == ""


def star(n):
    w = np.random.default_rng(0).normal(size=n - 1)
    hub, leaf = np.zeros(n - 1, int), np.arange(1, n)
    places = np.r_[hub, leaf], np.r_[leaf, hub]
    couplings = coo_array((np.r_[w, w], places), shape=(n, n)).tocsr()
    model = mf.BoltzmannMachine(couplings, mf.Ising(np.zeros(n)))
    return model, np.log(2) + np.log(2 * np.cosh(w)).sum()


def test_graphs_of_small_width_are_summed_and_not_estimated():
    model, expected = star(5001)
    (entry,) = mf.evaluation.log_partition_report(model)
    assert entry.name == "exact" and "include_exact=True" in entry.remark
    assert entry.log_partition == pytest.approx(expected, rel=1e-12)
    model, expected = star(30)
    options = {"n_chains": 20, "n_steps": 20}
    report = mf.evaluation.log_partition_report(model, include_exact=True, **options)
    assert [entry.name for entry in report][:3] == ["exact", "AIS", "reverse AIS"]
    assert report[0].remark == "" and report[0].log_partition == pytest.approx(expected)
    assert report["NMF, largest"].log_partition <= expected
    names = [
        entry.name
        for entry in mf.evaluation.log_partition_report(model, include_exact=False, **options)
    ]
    assert names[:2] == ["AIS", "reverse AIS"]


def test_forbidden_states_leave_the_exact_value():
    rng = np.random.default_rng(0)
    J = np.kron(1 - np.eye(3), np.ones((2, 2))) * rng.normal(size=(6, 6))
    J = J + J.T
    J[0, 2] = J[2, 0] = -np.inf
    model = mf.BoltzmannMachine(J, mf.Categorical(np.zeros((3, 2))))
    (entry,) = mf.evaluation.log_partition_report(model)
    states = np.array(list(itertools.product(*[np.eye(2)] * 3))).reshape(8, 6)
    allowed = ~((states[:, 0] == 1) & (states[:, 2] == 1))
    finite = np.where(np.isinf(J), 0, J)
    logs = np.einsum("si,ij,sj->s", states, finite, states)[allowed] / 2
    assert entry.log_partition == pytest.approx(np.logaddexp.reduce(logs))
    with pytest.raises(ValueError, match="-inf"):
        mf.evaluation.log_partition_report(model, include_exact=True)


# --- effective couplings --------------------------------------------------------------------------


RNG = np.random.default_rng(0)
UNITS = mf.Categorical([np.zeros(3), np.zeros(2), np.zeros(4)])
X = np.stack([RNG.integers(0, size, 30) for size in (3, 2, 4)], 1)


def zero_sum(block):
    return block - block.mean(0) - block.mean(1)[:, None] + block.mean()


def test_gaussian_hidden_units_give_the_product_of_the_weights():
    weights, precision = RNG.normal(size=(9, 5)), RNG.uniform(1, 3, 5)
    model = mf.RBM(weights, UNITS, mf.Gaussian(RNG.normal(size=5), precision))
    found = effective_couplings(model, X)
    expected = (weights / precision) @ weights.T
    for here in (slice(0, 3), slice(3, 5), slice(5, 9)):
        for there in (slice(0, 3), slice(3, 5), slice(5, 9)):
            block = 0 if here == there else zero_sum(expected[here, there])
            np.testing.assert_allclose(found[here, there], block, atol=1e-12)


def test_two_groups_alone_have_the_couplings_of_their_distribution():
    """Without other groups the background does not matter, and the couplings are exact."""
    model = mf.RBM(
        2 * RNG.normal(size=(6, 4)),
        mf.Categorical(RNG.normal(size=(2, 3))),
        mf.Bernoulli(np.ones(4)),
    )
    found = effective_couplings(model, [[0, 1], [2, 2]])
    assert found.shape == (2, 3, 2, 3)
    labels = np.array([[a, b] for a in range(3) for b in range(3)])
    flat = model.visible.one_hot(labels)
    logs = model.visible.log_prob(flat).sum(1)
    logs += model.hidden.log_partition(flat @ model.weights, 0.0).sum(1)
    np.testing.assert_allclose(found[0, :, 1], zero_sum(logs.reshape(3, 3)), atol=1e-12)


def test_weights_choose_the_background_and_bad_input_is_named():
    model = mf.RBM(2 * RNG.normal(size=(9, 4)), UNITS, mf.Bernoulli(np.ones(4)))
    only_first = effective_couplings(model, X, n_background=1, sample_weight=np.arange(30) == 0)
    np.testing.assert_allclose(only_first, effective_couplings(model, X[:1]), atol=1e-13)
    assert abs(only_first - effective_couplings(model, X)).max() > 1e-3
    weighted = effective_couplings(model, X[:2], sample_weight=[3, 1], n_background=4)
    np.testing.assert_allclose(weighted, effective_couplings(model, X[[0, 0, 0, 1]]), atol=1e-13)
    single = mf.RBM(model.weights.astype(np.float32), UNITS, mf.Bernoulli(np.ones(4)))
    np.testing.assert_allclose(
        effective_couplings(single, X), effective_couplings(model, X), atol=1e-4
    )
    with pytest.raises(TypeError, match="all categorical"):
        effective_couplings(mf.RBM(np.ones((2, 2)), mf.Ising([0, 0]), mf.Ising([0, 0])), X)
    with pytest.raises(ValueError, match="sample_weight"):
        effective_couplings(model, X, sample_weight=[1.0])
    with pytest.raises(ValueError, match="X must be finite"):
        effective_couplings(model, [[0, -1, 0]])
