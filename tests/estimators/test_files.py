import numpy as np
import pandas as pd
import pytest

import fastmf as mf

X = (np.random.default_rng(0).random((20, 5)) < 0.5).astype(float)
ESTIMATORS = {
    "rbm": lambda **o: mf.GeneralizedRBM(2, n_epochs=1, random_state=0, **o).fit(X),
    "fully_visible": lambda **o: mf.FullyVisibleBoltzmannMachine(l2=0.1, **o).fit(X),
}


@pytest.fixture(scope="module", params=ESTIMATORS)
def fitted(request):
    return ESTIMATORS[request.param]()


REGRESSIONS = {
    "regressor": (mf.SpikeSlabRegressor, lambda y: y),
    "several targets": (mf.SpikeSlabRegressor, lambda y: np.c_[y, -y, y**2]),
    "classifier": (mf.SpikeSlabClassifier, lambda y: np.where(y > 0, "yes", "no").astype(object)),
}


@pytest.mark.parametrize("groups", [None, np.arange(6) % 2, ["a"] * 3 + ["b"] * 3])
@pytest.mark.parametrize("kind", REGRESSIONS)
def test_sparse_regressions_come_back(tmp_path, kind, groups):
    class_, target = REGRESSIONS[kind]
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.normal(size=(30, 6)), columns=list("abcdef"))
    y = data["a"].to_numpy() - data["c"].to_numpy() + rng.normal(size=30)
    fitted = class_(groups=groups, max_evidence_iter=3).fit(data, target(y))
    fitted.save(tmp_path / "file.npz")
    again = class_.load(tmp_path / "file.npz")
    np.testing.assert_array_equal(again.predict(data), fitted.predict(data))
    if kind != "classifier":
        for found, expected in zip(again.predict(data, return_std=True),
                                   fitted.predict(data, return_std=True), strict=True):  # fmt: skip
            np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_array_equal(again.predict_proba(data), fitted.predict_proba(data))
        assert again.classes_.tolist() == ["no", "yes"]
    pd.testing.assert_frame_equal(again.as_frame(), fitted.as_frame())
    assert again.n_iter_ == pytest.approx(fitted.n_iter_)
    refitted = again.fit(data, target(y))
    np.testing.assert_array_equal(refitted.coef_, fitted.coef_)


def test_the_random_state_comes_back(tmp_path):
    fitted = mf.GeneralizedRBM(2, n_epochs=1, random_state=7).fit(X)
    fitted.save(tmp_path / "file.npz")
    again = mf.GeneralizedRBM.load(tmp_path / "file.npz")
    assert again.random_state == 7
    np.testing.assert_array_equal(again.fit(X).weights_, fitted.weights_)
    fitted.set_params(random_state=np.random.RandomState(0)).save(tmp_path / "file.npz")
    assert mf.GeneralizedRBM.load(tmp_path / "file.npz").random_state is None


def test_arrays_among_the_options_come_back(tmp_path):
    start = np.zeros((5, 5)), np.zeros(5)
    fitted = mf.FullyVisibleBoltzmannMachine(l2=0.1, init=start).fit(X)
    fitted.save(tmp_path / "file.npz")
    again = mf.FullyVisibleBoltzmannMachine.load(tmp_path / "file.npz").fit(X)
    np.testing.assert_array_equal(again.couplings_, fitted.couplings_)


def test_options_and_what_was_learned_come_back(tmp_path, fitted):
    fitted.save(tmp_path / "file.npz")
    again = type(fitted).load(tmp_path / "file.npz")
    forgotten = fitted._forgotten
    options, expected = again.get_params(), fitted.get_params()
    assert {k: v for k, v in options.items() if k not in forgotten} == {
        k: v for k, v in expected.items() if k not in forgotten
    }
    assert repr(again.model_) == repr(fitted.model_) and again.n_iter_ == fitted.n_iter_


def test_a_file_of_another_estimator_or_none_is_refused(tmp_path, fitted):
    path = tmp_path / "file.npz"
    fitted.save(path)
    with pytest.raises(ValueError, match="is not a DeepBoltzmannMachine of fastmf"):
        mf.DeepBoltzmannMachine.load(path)
    fitted.model_.save(path)
    with pytest.raises(ValueError, match="holds no estimator"):
        type(fitted).load(path)


def test_an_option_that_only_a_pickle_can_hold_is_named(tmp_path):
    machine = ESTIMATORS["rbm"]().set_params(learning_rate=lambda epoch: 0.1)
    with pytest.raises(TypeError, match=r"learning_rate=.* cannot be saved"):
        machine.save(tmp_path / "file.npz")
    assert not (tmp_path / "file.npz").exists()
