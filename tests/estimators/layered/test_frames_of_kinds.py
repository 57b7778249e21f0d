"""Kinds of columns that a machine infers from a data frame."""

import numpy as np
import pytest

import fastmf as mf

pd = pytest.importorskip("pandas")
OPTIONS = {"n_epochs": 3, "random_state": 0}


def mixed_frame(n=300):
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, n)
    return pd.DataFrame({
        "smokes": rng.random(n) < np.where(kind, 0.7, 0.1),
        "region": np.array(["south", "north", "west"])[np.where(rng.random(n) < 0.8, kind, 2)],
        "grade": pd.Categorical.from_codes(rng.integers(0, 3, n), ["low", "mid", "high", "top"]),
        "age": rng.normal(np.where(kind, 60, 35), 8),
        "year": rng.normal(1980, 12, n).round().astype(int),
        "visits": rng.binomial(9, np.where(kind, 0.4, 0.1)),
    })  # fmt: skip


def test_kinds_are_those_of_units_given_by_hand():
    frame = mixed_frame()
    codes = frame.assign(
        region=pd.Categorical(frame.region).codes, grade=frame.grade.cat.codes
    ).to_numpy(float)
    units = mf.Concatenated(
        mf.Bernoulli.from_data(codes[:, :1]),
        mf.Categorical.from_data(codes[:, 1:3], sizes=np.array([3, 4])),
        mf.Gaussian.from_data(codes[:, 3:5]),
        mf.Ordinal.from_data(codes[:, 5:]),
    )
    machine = mf.GeneralizedRBM(2, **OPTIONS).fit(frame)
    assert machine.categories_[1:4] == [
        ["north", "south", "west"], ["low", "mid", "high", "top"], None
    ]  # fmt: skip
    for part, expected in zip(machine.pointwise_.parts, units.parts, strict=True):
        assert type(part) is type(expected)
        np.testing.assert_allclose(np.concatenate(part, None), np.concatenate(expected, None))
    by_hand = mf.GeneralizedRBM(
        init=mf.RBM(np.zeros((11, 2)), units, mf.Bernoulli([0.0, 0.1])), **OPTIONS
    ).fit(codes)
    by_hand.model_ = machine.model_
    np.testing.assert_allclose(machine.score_samples(frame), by_hand.score_samples(codes))
    np.testing.assert_array_equal(machine.transform(frame), by_hand.transform(codes))


def test_names_and_categories_of_results(tmp_path):
    frame = mixed_frame()
    machine = mf.DeepBoltzmannMachine((2, 2), **OPTIONS).fit(frame)
    machine.save(tmp_path / "machine.npz")
    loaded = mf.DeepBoltzmannMachine.load(tmp_path / "machine.npz")
    drawn = loaded.sample(5, random_state=0)
    assert list(drawn.columns) == list(frame.columns) and loaded.score_samples(drawn).shape == (5,)
    gaps = frame[::-1].head(3).astype(object)
    gaps.iloc[0, 1] = gaps.iloc[1, 3] = gaps.iloc[2, 0] = None
    filled = loaded.impute(gaps)
    assert filled.index.equals(gaps.index) and not filled.isna().to_numpy().any()
    present = gaps.notna()
    assert (filled.astype(object).where(present) == gaps.where(present))[present].all(axis=None)
    with pytest.raises(ValueError, match=r"got 'east' in column 1 \('region'\)"):
        loaded.transform(frame.replace({"region": {"west": "east"}}))
    with pytest.raises(ValueError, match="got 99 in row 0, column 5"):
        loaded.transform(frame.assign(visits=99))
    with pytest.raises(ValueError, match="must be in the same order"):
        loaded.transform(frame[frame.columns[::-1]])


def test_frames_of_polars_are_as_frames_of_pandas():
    polars, frame = pytest.importorskip("polars"), mixed_frame()
    columns = {name: column.tolist() for name, column in frame.items()}
    grades = polars.Enum(frame.grade.cat.categories.tolist())
    same = polars.DataFrame(columns).with_columns(polars.col("grade").cast(grades))
    machines = [mf.GeneralizedRBM(2, **OPTIONS).fit(X) for X in (frame, same)]
    assert machines[1].categories_ == machines[0].categories_
    np.testing.assert_array_equal(machines[1].weights_, machines[0].weights_)
    columns |= {"region": [None, *frame.region[1:]], "age": [*frame.age[:-1], None]}
    expected, filled = (
        machine.impute(frames.DataFrame(columns))
        for machine, frames in zip(machines, (pd, polars), strict=True)
    )
    assert list(expected.itertuples(index=False, name=None)) == filled.rows()


def test_names_of_rows_are_no_categories():
    frame = mixed_frame(30).assign(name=[f"person {k}" for k in range(30)])
    with pytest.warns(UserWarning, match=r"column 6 \('name'\) has a different text in each row"):
        mf.GeneralizedRBM(2, **OPTIONS).fit(frame)


def test_frames_of_values_from_0_to_1_are_as_arrays():
    frame = pd.DataFrame(np.random.default_rng(0).random((50, 4))).add_prefix("x")
    machines = [mf.GeneralizedRBM(2, **OPTIONS).fit(X) for X in (frame, frame.to_numpy())]
    np.testing.assert_array_equal(machines[0].weights_, machines[1].weights_)
    assert machines[0].categories_ is None
    pd.testing.assert_frame_equal(machines[0].impute(frame), frame)
