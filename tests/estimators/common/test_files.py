import json
from itertools import product

import numpy as np
import pandas as pd
import pytest

import fastmf as mf
from fastmf import estimators

X = (np.random.default_rng(0).random((20, 5)) < 0.5).astype(float)
ESTIMATORS = {
    "rbm": lambda **o: mf.GeneralizedRBM(2, n_epochs=1, random_state=0, **o).fit(X),
    "fully_visible": lambda **o: mf.FullyVisibleBoltzmannMachine(l2=0.1, **o).fit(X),
}
OTHERS = {
    "deep": lambda: mf.DeepBoltzmannMachine((3, 2), n_epochs=1, pretraining_epochs=0).fit(X),
    "conditional": lambda: mf.ConditionalRBM(2, n_epochs=1).fit(X, X[:, :2]),
    "potts": lambda: mf.PottsMachine(l2=0.1, l2_field=0.1).fit(X.astype(int)),
    "few rows": lambda: mf.PottsMachine(l2=0.1, l2_field=0.1).fit(
        np.random.default_rng(0).integers(0, 4, (2, 12))
    ),
    "incomplete": lambda: mf.FullyVisibleBoltzmannMachine(missing="em", l2=0.1).fit(
        np.where(np.eye(*X.shape) > 0, np.nan, X), clusters=np.arange(len(X)) // 2
    ),
    "categorical": lambda: mf.GeneralizedRBM(2, visible="categorical", n_epochs=1).fit(
        X.astype(int)
    ),
}


@pytest.fixture(scope="module", params=ESTIMATORS)
def fitted(request):
    return ESTIMATORS[request.param]()


REGRESSIONS = {
    "regressor": (mf.SpikeSlabRegressor, lambda y: y),
    "classifier": (mf.SpikeSlabClassifier, lambda y: np.where(y > 0, "yes", "no").astype(object)),
}


@pytest.mark.parametrize(
    ("kind", "groups"),
    [("regressor", None), ("regressor", ["a"] * 3 + ["b"] * 3), ("classifier", np.arange(6) % 2)],
)
def test_sparse_regressions_come_back(tmp_path, kind, groups):
    class_, target = REGRESSIONS[kind]
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.normal(size=(30, 6)), columns=list("abcdef"))
    y = data["a"].to_numpy() - data["c"].to_numpy() + rng.normal(size=30)
    fitted = class_(groups=groups).fit(data, target(y))
    path = tmp_path / "file.npz"
    fitted.save(path)
    again = class_.load(path)
    np.testing.assert_array_equal(again.predict(data), fitted.predict(data))
    if kind != "classifier":
        deviation = fitted.predict(data, return_std=True)[1]
        np.testing.assert_array_equal(again.predict(data, return_std=True)[1], deviation)
    else:
        np.testing.assert_array_equal(again.predict_proba(data), fitted.predict_proba(data))
        assert again.classes_.tolist() == ["no", "yes"]
    pd.testing.assert_frame_equal(again.as_frame(), fitted.as_frame())
    assert again.n_iter_ == pytest.approx(fitted.n_iter_)
    np.testing.assert_array_equal(again.fit(data, target(y)).coef_, fitted.coef_)
    # Files of earlier versions held the likelihood of regressors, and not that of classifiers.
    members = dict(np.load(path))
    name, settings, learned = members["estimator"]
    learned = json.loads(learned)
    if learned.pop("_likelihood", None) is None:
        learned["_likelihood"] = "gaussian"
    np.savez(path, **members | {"estimator": np.array([name, settings, json.dumps(learned)])})
    np.testing.assert_array_equal(class_.load(path).predict(data), fitted.predict(data))


def test_the_random_state_comes_back(tmp_path):
    fitted = mf.GeneralizedRBM(2, n_epochs=1, random_state=7).fit(X)
    fitted.save(tmp_path / "file.npz")
    again = mf.GeneralizedRBM.load(tmp_path / "file.npz")
    assert again.random_state == 7
    np.testing.assert_array_equal(again.fit(X).weights_, fitted.weights_)
    fitted.set_params(random_state=np.random.RandomState(0)).save(tmp_path / "file.npz")
    assert mf.GeneralizedRBM.load(tmp_path / "file.npz").random_state is None


def test_arrays_among_the_options_come_back(tmp_path):
    chain = np.eye(5, k=1) + np.eye(5, k=-1)
    fitted = mf.FullyVisibleBoltzmannMachine(l2=0.1, graph=chain).fit(X)
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


def _altered(name, array, members):
    """Alterations after which a member is none of the estimator."""
    # Without these it is another kind of machine.
    if name not in ("model", "coefficients", "sampling"):
        yield "lacking", None
    yield "object", np.array([{}, None], object)
    yield "one axis more", array[None]
    if array.dtype.kind == "U":
        yield "empty", array[:0]
        yield "text of kilobytes", np.array(["x" * 10**4] * array.size)
        yield "numbers", np.zeros(array.shape)
        yield "lines", np.array(["a\nb"] * array.size)
        return
    yield "text", np.full(array.shape, "1")
    if array.dtype.kind == "f" and name != "history_":
        yield "NaN", np.full(array.shape, np.nan)
    of_rows = name == "weights" and ("rows" in members or "labels" in members)
    if of_rows or name in ("labels", "rows", "coefficient_rows", "starts_"):
        yield "out of range", np.full(array.shape, -7, array.dtype if name != "rows" else int)
        if name != "starts_":
            yield "longer", np.concatenate([array, array])


@pytest.fixture(scope="module", params=ESTIMATORS | OTHERS)
def saved(request, tmp_path_factory):
    """The class of an estimator, its file, and the members of that."""
    fitted = (ESTIMATORS | OTHERS)[request.param]()
    path = tmp_path_factory.mktemp("saved") / "file.npz"
    fitted.save(path)
    with np.load(path) as file:
        return type(fitted), path, dict(file)


def _refused(class_, path, members, *what):
    """Check that a file is refused in one short line."""
    np.savez(path, **members)
    with pytest.raises(ValueError, match=r"file\.npz is not a") as caught:
        class_.load(path)
        print(*what)  # for the report of a failure
    text = str(caught.value)
    assert "\n" not in text and len(text) < len(str(path)) + 400, (what, text)


def test_members_that_are_none_of_the_estimator(saved):
    class_, path, members = saved
    for name, array in members.items():
        for what, altered in _altered(name, array, members):
            others = {k: v for k, v in members.items() if k != name}
            changed = others if altered is None else others | {name: altered}
            if what in ("lines", "text of kilobytes") and len(array) == 1 and name != "model":
                np.savez(path, **changed)
                with pytest.raises(LookupError, match="unknown here") as caught:
                    class_.load(path)
                assert "\n" not in str(caught.value) and len(str(caught.value)) < 400
            else:
                _refused(class_, path, changed, name, what)


TEXTS = ["[1]", "3", "null", '"x"', "{", "[" * 10**5, "a\nb", '{"x": 1}', "{}", "x" * 10**5]
VALUES = ["-1", '"x"', "[[1]]", "null", "true", "1e400", "{}"]
NAMES = ["n_iter_", "n_features_in_", "history_", "existence_"]


def test_text_that_is_none_of_the_estimator(saved):
    class_, path, members = saved
    learned = [f'{{"{name}": {value}}}' for name in NAMES for value in VALUES]
    for text, place in [*product(TEXTS, range(3)), *product(learned, [2])]:
        texts = members["estimator"].tolist()
        texts[place] = text
        altered = members | {"estimator": np.array(texts)}
        if place == 1 and text == "{}":
            np.savez(path, **altered)
            class_.load(path)  # all options at their defaults
        else:
            _refused(class_, path, altered, place, text[:50])


def test_a_model_of_another_kind_is_refused(tmp_path):
    path, fitted = tmp_path / "file.npz", ESTIMATORS["rbm"]()
    fitted.save(path)
    with np.load(path) as file:
        members = dict(file)
    mf.DBM(
        (np.ones((5, 3)), np.ones((3, 2))), tuple(mf.Bernoulli(np.zeros(n)) for n in (5, 3, 2))
    ).save(tmp_path / "dbm.npz")
    with np.load(tmp_path / "dbm.npz") as file:
        np.savez(path, **members | dict(file))
    with pytest.raises(ValueError, match="its model is a DBM, expected RBM"):
        type(fitted).load(path)


@pytest.mark.parametrize("name", estimators.__all__)
def test_constructors_keep_options_as_they_are_given(name):
    kind = getattr(mf, name)
    given = {option: object() for option in kind._get_param_names()}
    assert vars(kind(**given)) == given


@pytest.mark.parametrize("options", [{}, {"missing": "em"}, {"l1": "ebic"}])
def test_files_of_earlier_versions(tmp_path, options):
    """Rows were bits beside a model, sparse arrays had three members, and options have gone."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((90, 9)) < 0.5, 1.0, 0.0)
    X[:, 1] = np.where(rng.random(90) < 0.8, X[:, 0], X[:, 1])
    if options == {"missing": "em"}:
        X[rng.random(X.shape) < 0.1] = np.nan
    machine = mf.FullyVisibleBoltzmannMachine(**options).fit(X)
    machine.save(tmp_path / "new.npz")
    arrays = dict(np.load(tmp_path / "new.npz"))
    del arrays["pairs"], arrays["parameters"]
    rows = arrays["rows"]
    arrays |= {"rows": np.packbits(rows > 0, axis=1), "seen": np.packbits(rows >= 0, axis=1)}
    if "share" in arrays:
        share = machine._completions.share
        arrays |= {
            "share": share.data,
            "share_indices": share.indices,
            "share_indptr": share.indptr,
        }
    name, settings, fitted = arrays["estimator"]
    fitted = json.loads(fitted) | {"n_sweeps_": 0.0}
    arrays["missing"] = np.array([fitted.pop("n_missing_"), fitted.pop("n_dropped_")])
    settings = json.dumps(json.loads(settings) | {"step": 0.5})
    arrays["estimator"] = np.array([name, settings, json.dumps(fitted)])
    machine.model_.save(tmp_path / "model.npz")
    np.savez(tmp_path / "old.npz", **arrays, **np.load(tmp_path / "model.npz"))
    with pytest.warns(UserWarning, match="has no option 'step'"):
        again = mf.FullyVisibleBoltzmannMachine.load(tmp_path / "old.npz")
    np.testing.assert_array_equal(again.couplings_, machine.couplings_)
    np.testing.assert_array_equal(again.standard_errors()[0], machine.standard_errors()[0])
    assert again.n_missing_ == machine.n_missing_ and "n_sweeps_" not in vars(again)
