"""Missing values, masks, strings and infinity at the door of every estimator."""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

import fastmf as mf

RNG = np.random.default_rng(0)
X = (RNG.random((40, 5)) < 0.5).astype(float)
Y = (RNG.random((40, 3)) < 0.5).astype(int)
HOLES = np.where(np.arange(200).reshape(40, 5) == 17, np.nan, X)  # row 3, column 2
SMALL = {"n_epochs": 1, "random_state": 0}
FRAME = pd.DataFrame(X).astype("Int64")
FRAME.iloc[3, 2] = pd.NA
NONE = X.astype(object)
NONE[3, 2] = None
MISSING = {
    "NaN": HOLES,
    "None": NONE,
    "list": NONE.tolist(),
    "NA": FRAME,
    "masked": np.ma.masked_array(X.astype(int), np.isnan(HOLES)),
    "masked objects": np.ma.masked_array(X.astype(object), np.isnan(HOLES)),
}
LAYERED = {
    "GeneralizedRBM": mf.GeneralizedRBM(2, **SMALL),
    "DeepBoltzmannMachine": mf.DeepBoltzmannMachine((2, 2), pretraining_epochs=1, **SMALL),
}
MACHINES = {"FullyVisibleBoltzmannMachine": mf.FullyVisibleBoltzmannMachine(l2=0.1)}
PREDICTORS = {
    "ConditionalRBM": (mf.ConditionalRBM(2, **SMALL), Y),
    "SpikeSlabRegressor": (mf.SpikeSlabRegressor(), Y[:, 0]),
    "SpikeSlabClassifier": (mf.SpikeSlabClassifier(), Y[:, 0]),
}
PLACE = r"^X has missing values \(NaN\), 1 in all, the first in row 3, column 2: .*impute"


@pytest.mark.parametrize("kind", MISSING)
@pytest.mark.parametrize("name", MACHINES)
def test_machines_say_where_values_are_missing_and_who_takes_them(name, kind):
    machine, given = MACHINES[name], MISSING[kind]
    with pytest.raises(ValueError, match=PLACE) as error:
        machine.fit(given)
    assert "\n" not in str(error.value) and "HistGradient" not in str(error.value)
    machine.fit(X)
    with pytest.raises(ValueError, match=PLACE):
        machine.score_samples(given)
    filled = np.asarray(machine.impute(given), float)
    np.testing.assert_array_equal(filled, np.asarray(machine.impute(HOLES), float))
    assert (filled != HOLES).sum() == 1


@pytest.mark.parametrize("kind", MISSING)
@pytest.mark.parametrize("name", LAYERED)
def test_layered_machines_take_missing_values(name, kind):
    machine, given = LAYERED[name], MISSING[kind]
    expected = machine.fit(HOLES).weights_
    for found, weights in zip(machine.fit(given).weights_, expected, strict=True):
        np.testing.assert_array_equal(found, weights)
    np.testing.assert_array_equal(machine.score_samples(given), machine.score_samples(HOLES))
    np.testing.assert_array_equal(machine.transform(given), machine.transform(HOLES))
    options = {"flip_probability": 0.1}
    np.testing.assert_array_equal(
        machine.denoise(given, **options), machine.denoise(HOLES, **options)
    )
    filled = np.asarray(machine.impute(given), float)
    assert (filled != HOLES).sum() == 1


@pytest.mark.parametrize("kind", MISSING)
def test_potts_machines_take_missing_values(kind):
    machine = mf.PottsMachine(l2=0.1)
    expected = machine.fit(HOLES).couplings_
    np.testing.assert_array_equal(machine.fit(MISSING[kind]).couplings_, expected)
    assert not pd.isna(machine.impute(MISSING[kind])).any(axis=None)


@pytest.mark.parametrize("kind", MISSING)
@pytest.mark.parametrize("name", PREDICTORS)
def test_predictors_say_where_values_are_missing(name, kind):
    estimator, y = PREDICTORS[name]
    with pytest.raises(ValueError, match=PLACE):
        estimator.fit(MISSING[kind], y)
    with pytest.raises(ValueError, match=PLACE):
        estimator.fit(X, y).predict(MISSING[kind])


@pytest.mark.parametrize("name", PREDICTORS)
def test_targets_are_complete(name):
    estimator, y = PREDICTORS[name]
    absent = y.astype(object)
    absent[2] = None
    masked = np.ma.masked_array(y, np.ones(y.shape, bool))
    # Sparse regression leaves out rows without a target.
    for bad in (masked, absent)[: 2 - (name == "SpikeSlabRegressor")]:
        with pytest.raises(ValueError, match=r"^y (contains missing|must have no masked)"):
            estimator.fit(X, bad)
    whole = np.ma.masked_array(y, np.zeros(y.shape, bool))
    np.testing.assert_array_equal(
        estimator.fit(X, whole).predict(X), estimator.fit(X, y).predict(X)
    )


def test_infinity_and_strings_are_placed():
    wrong = np.where(np.isnan(HOLES), -np.inf, X)
    frame = pd.DataFrame(wrong, columns=list("abcde"))
    for given, place in ((wrong, "column 2"), (csr_array(wrong), "2"), (frame, r"2 \('c'\)")):
        with pytest.raises(ValueError, match=r"got infinity in row 3.*" + place):
            mf.GeneralizedRBM(2, **SMALL).fit(given)
    words = X.astype(object)
    words[1, 4] = "yes"
    with pytest.raises(ValueError, match=r"must hold numbers: could not convert .* 'yes'; encode"):
        mf.GeneralizedRBM(2, **SMALL).fit(words)
    with pytest.raises(TypeError, match="Sparse data was passed for X, but dense"):
        mf.FullyVisibleBoltzmannMachine().fit(csr_array(X))


DAYS = pd.date_range("2020-01-01", periods=40)
DATES = {
    "columns": pd.DataFrame({"a": X[:, 0], "day": DAYS}),
    "zone": pd.DataFrame({"a": X[:, 0], "day": DAYS.tz_localize("UTC")}),
    "durations": pd.DataFrame({"a": X[:, 0], "day": DAYS - DAYS[0]}),
    "alone": pd.DataFrame({"day": DAYS}),
    "array": np.asarray(DAYS, "datetime64[D]")[:, None],
    "objects": np.array([[1.0, day.date()] for day in DAYS], object),
}


@pytest.mark.parametrize("kind", DATES)
def test_dates_are_no_numbers(kind):
    named = r" in column \d \('day'\)" if isinstance(DATES[kind], pd.DataFrame) else ""
    for estimator in (mf.SpikeSlabRegressor(), LAYERED["GeneralizedRBM"]):
        message = rf"X must hold numbers, got .*{named}.*days since"
        if kind == "objects":
            message = "X must hold numbers: .*date"
        with pytest.raises((ValueError, TypeError), match=message):
            estimator.fit(DATES[kind], Y[:, 0])
    for machine in (mf.PottsMachine(), mf.OrdinalMachine()):
        with pytest.raises((ValueError, TypeError), match="X must hold numbers"):
            machine.fit(DATES[kind])


def test_targets_of_regressions_are_numbers():
    for y, message in (
        (DAYS, "y must hold numbers, got datetime64"),
        (np.where(Y[:, 0], "yes", "no"), "y must hold numbers, got .(no|yes).: .*Classifier"),
        (pd.Categorical(np.where(Y[:, 0], "yes", "no")), "^y must hold numbers, got .(no|yes).:"),
        (Y, r"y should be a 1d array, got .* shape \(40, 3\) .* a model for each column"),
    ):
        with pytest.raises(ValueError, match=message):
            mf.SpikeSlabRegressor().fit(X, y)


@pytest.mark.parametrize("name", ["ConditionalRBM", "SpikeSlabClassifier"])
def test_labels_are_of_one_kind(name):
    labels = np.array(["yes" if label else 0 for label in Y[:, 0]], object)
    with pytest.raises(TypeError, match="y must hold labels of one kind, got 'yes' and 0"):
        PREDICTORS[name][0].fit(X, labels)
    frame = pd.DataFrame({"a": Y[:, 0], "b": np.where(Y[:, 1], "u", "v"), "c": Y[:, 2] > 0})
    with pytest.raises(TypeError, match="y must hold labels of one kind"):
        mf.ConditionalRBM(2, **SMALL).fit(X, frame)


@pytest.mark.parametrize("given", [{"a": [1, 2]}, (row for row in X), [[1, {}]]])
def test_only_dates_come_with_advice_on_dates(given):
    with pytest.raises(TypeError, match="X must hold numbers") as error:
        mf.SpikeSlabRegressor().fit(given, [1.0, 2.0])
    assert "days since" not in str(error.value)


def test_what_units_cannot_take_comes_with_advice():
    with pytest.raises(ValueError, match=r"got 255 in row 0, column 0: .* X / 255"):
        LAYERED["GeneralizedRBM"].fit(np.full((4, 2), 255, np.uint8))
    bounded = mf.GeneralizedRBM(2, visible=mf.TruncatedGaussian.from_data(X, 0, 1))
    with pytest.raises(ValueError, match=r"`upper` of its unit, got 1\.0000000000000002 in row"):
        bounded.fit(np.nextafter(X, 2 * X))
    with pytest.raises(ValueError, match=r"at most 254 categories, got 255 .* bin"):
        mf.PottsMachine().fit(255 * X)
