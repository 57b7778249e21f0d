"""Tables of strings, codes and categories in the machines that take them."""

import numpy as np
import pandas as pd
import pytest

import fastmf as mf
from fastmf.estimators.common.categories import codes, declared_categories

RNG = np.random.default_rng(0)
CHAIN = (np.cumprod(np.where(RNG.random((200, 4)) < 0.75, 1, -1), axis=1) > 0).astype(int)
WORDS = np.array(["no", "yes"])[CHAIN]
MIXED = pd.DataFrame(WORDS, columns=list("abcd"))
MIXED["b"] = CHAIN[:, 1] + 1
MIXED["c"] = CHAIN[:, 2] > 0
TWO_VALUED = {
    "strings": WORDS,
    "objects": WORDS.astype(object),
    "frame": pd.DataFrame(WORDS, columns=list("abcd")),
    "codes": CHAIN + 1,
    "half precision": CHAIN.astype(np.float16),
    "extended precision": CHAIN.astype(np.longdouble),
    "booleans": CHAIN > 0,
    "nullable": pd.DataFrame(CHAIN).astype("Int64"),
    "categories": pd.DataFrame(
        {name: pd.Categorical.from_codes(CHAIN[:, j], ["z", "a"]) for j, name in enumerate("abcd")}
    ),
    "mixed": MIXED,
}


def without(X, row, column):
    """The same table with a missing entry."""
    if isinstance(X, pd.DataFrame):
        X = X.astype(object)
        X.iloc[row, column] = None
        return X
    X = X.astype(object)
    X[row, column] = None
    return X


@pytest.mark.parametrize("kind", TWO_VALUED)
def test_two_values_of_any_kind(kind, tmp_path):
    X = TWO_VALUED[kind]
    expected = mf.FullyVisibleBoltzmannMachine().fit(CHAIN)
    machine = mf.FullyVisibleBoltzmannMachine().fit(X)
    np.testing.assert_array_equal(machine.couplings_, expected.couplings_)
    machine.save(tmp_path / "machine.npz")
    machine = mf.FullyVisibleBoltzmannMachine.load(tmp_path / "machine.npz")
    np.testing.assert_array_equal(machine.score_samples(X), expected.score_samples(CHAIN))
    values = [tuple(known.tolist()) for known in machine.categories_]
    drawn, filled = machine.sample(5, random_state=0), machine.impute(without(X, 0, 3))
    for j, (low, high) in enumerate(values):
        column = expected.sample(5, random_state=0)[:, j]
        assert drawn[:, j].tolist() == np.where(column > 0, high, low).tolist()
    mean = expected.impute(np.where(np.arange(4) == 3, np.nan, CHAIN[:1]))[0, 3]
    low, high = values[3]
    right = (high if mean > 0.5 else low) if isinstance(low, str) else low + mean * (high - low)
    assert isinstance(filled, pd.DataFrame) == isinstance(X, pd.DataFrame)
    assert np.asarray(filled)[0, 3] == pytest.approx(right)
    if isinstance(X, pd.DataFrame):
        assert list(filled.columns) == list(X.columns)
        assert (filled.iloc[1:].to_numpy() == X.iloc[1:].to_numpy()).all()


def test_no_state_is_invented_for_codes_from_one(tmp_path):
    answers = RNG.integers(1, 7, (200, 3))
    machine = mf.PottsMachine(l2=0.1).fit(answers)
    assert machine.sizes_.tolist() == [6, 6, 6] and machine.categories_[0].tolist() == [
        *range(1, 7)
    ]
    from_zero = mf.PottsMachine(l2=0.1).fit(answers - 1)
    np.testing.assert_array_equal(machine.couplings_, from_zero.couplings_)
    np.testing.assert_array_equal(machine.mutants(answers[0]), from_zero.mutants(answers[0] - 1))
    machine.save(tmp_path / "machine.npz")
    machine = mf.PottsMachine.load(tmp_path / "machine.npz")
    drawn = machine.sample(9, random_state=0)
    np.testing.assert_array_equal(drawn, from_zero.sample(9, random_state=0) + 1)
    holes = np.where(np.arange(3) == 1, -1, answers)
    np.testing.assert_array_equal(
        machine.impute(holes), from_zero.impute(np.where(holes < 0, -1, holes - 1)) + 1
    )
    with pytest.raises(ValueError, match="in column 0 one of 1, 2, 3, 4, 5, 6: got 0"):
        machine.score(answers - 1)


def test_strings_of_potts_machines(tmp_path):
    letters = np.array(list("-ACD"))[(numbers := RNG.integers(0, 4, (200, 3)))]
    expected = mf.PottsMachine(l2=0.1).fit(numbers)
    machine = mf.PottsMachine(l2=0.1).fit(letters)
    np.testing.assert_array_equal(machine.couplings_, expected.couplings_)
    drawn = machine.sample(5, random_state=0)
    assert drawn.dtype.kind == "U"
    np.testing.assert_array_equal(codes(machine, drawn, machine.categories_),
                                  expected.sample(5, random_state=0))  # fmt: skip
    table = pd.DataFrame(
        {"sex": np.array(["m", "f"])[numbers[:, 0] % 2], "item": numbers[:, 1] + 1,
         "grade": pd.Categorical(letters[:, 2], ["D", "C", "B", "A", "-"])}
    )  # fmt: skip
    mixed = mf.PottsMachine(l2=0.1, l2_field=0.1).fit(table)
    assert mixed.sizes_.tolist() == [2, 4, 5]
    mixed.save(tmp_path / "machine.npz")
    mixed = mf.PottsMachine.load(tmp_path / "machine.npz")
    assert [known.tolist() for known in mixed.categories_] == [
        ["f", "m"], [1, 2, 3, 4], ["D", "C", "B", "A", "-"],
    ]  # fmt: skip
    filled = mixed.impute(without(table, 7, 0))
    assert list(filled.columns) == ["sex", "item", "grade"] and filled.iloc[7, 0] in ("f", "m")
    assert (filled.iloc[:7].astype(object) == table.iloc[:7].astype(object)).all(axis=None)


def test_other_values_and_other_kinds():
    machine = mf.PottsMachine(l2=0.1).fit(WORDS)
    with pytest.raises(ValueError, match="column 1 one of 'no', 'yes': got 'maybe' in row 2"):
        machine.energy(np.where(np.arange(800).reshape(200, 4) == 9, "maybe", WORDS))
    with pytest.raises(TypeError, match="numbers, booleans or strings, got date"):
        mf.PottsMachine().fit(np.array([[np.datetime64("2020-01-01")] * 2] * 2, object))
    with pytest.raises(TypeError, match=r"numbers, booleans or strings, got dtype \|S"):
        mf.PottsMachine().fit(WORDS.astype("S3"))
    with pytest.raises(ValueError, match="must have no missing labels"):
        machine.mutants(np.array([None, "no", "no", "no"], object))


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble])
def test_labels_in_half_and_extended_precision(dtype):
    expected = mf.PottsMachine(l2=0.1).fit(CHAIN)
    labels = CHAIN.astype(dtype)
    labels[0, 1] = np.nan
    machine = mf.PottsMachine(l2=0.1).fit(CHAIN.astype(dtype))
    np.testing.assert_array_equal(machine.couplings_, expected.couplings_)
    np.testing.assert_array_equal(machine.impute(labels), expected.impute(labels.astype(float)))


@pytest.mark.parametrize("kind", ["U", "O"])
def test_masked_words_are_missing(kind):
    mask = np.arange(CHAIN.size).reshape(CHAIN.shape) % 97 == 5
    masked = np.ma.masked_array(WORDS.astype(kind), mask)
    for machine in (
        mf.FullyVisibleBoltzmannMachine(missing="em"),
        mf.OrdinalMachine(missing="em"),
        mf.PottsMachine(l2=0.1),
    ):
        expected = machine.fit(np.where(mask, None, WORDS)).couplings_
        np.testing.assert_array_equal(machine.fit(masked).couplings_, expected)
        assert machine.n_missing_ == mask.sum()


def test_enums_of_polars_declare_their_order():
    polars = pytest.importorskip("polars")
    levels = ["low", "medium", "high"]
    frame = polars.DataFrame({"a": ["high", "low"], "b": ["x", "y"], "c": ["low", "medium"]})
    frame = frame.with_columns(
        polars.col("a").cast(polars.Enum(levels)), polars.col("c").cast(polars.Categorical)
    )
    (declared,) = declared_categories(frame).items()
    assert declared[0] == 0 and declared[1].categories.to_list() == levels
    rng = np.random.default_rng(0)
    codes = np.digitize(rng.normal(size=(80, 1)) + rng.normal(size=(80, 3)), [-0.5, 0.8])
    words = polars.DataFrame(dict(zip("abc", np.array(levels)[codes].T, strict=True)))
    machine = mf.OrdinalMachine().fit(words.cast(polars.Enum(levels)))
    assert [list(known) for known in machine.categories_] == [levels] * 3
    np.testing.assert_array_equal(machine.couplings_, mf.OrdinalMachine().fit(codes).couplings_)


def test_dictionaries_of_arrow_declare_their_order():
    arrow, rng = pytest.importorskip("pyarrow"), np.random.default_rng(0)
    words = arrow.array(["low", "medium", "high"])
    columns = [arrow.DictionaryArray.from_arrays(k, words, ordered=True)
               for k in rng.integers(0, 3, (3, 60))]  # fmt: skip
    table = arrow.table(dict(zip("abc", columns, strict=True)))
    for frame in (table, table.to_pandas(types_mapper=pd.ArrowDtype)):
        machine = mf.OrdinalMachine(l2=0.1, l2_field=0.1).fit(frame)
        assert [list(listed) for listed in machine.categories_] == [words.tolist()] * 3


@pytest.mark.parametrize("kind", ["Potts", "ordinal", "binary"])
def test_entries_of_another_kind_and_huge_integers_are_refused(kind):
    machine = {
        "Potts": mf.PottsMachine(l2=0.1, l2_field=0.1),
        "ordinal": mf.OrdinalMachine(l2=0.1, l2_field=0.1),
        "binary": mf.FullyVisibleBoltzmannMachine(l2=0.1),
    }[kind].fit(CHAIN)
    other = CHAIN.astype(object)
    other[3, 2] = "many"
    with pytest.raises(ValueError, match=r"in column 2 one of .*: got 'many' in row 3"):
        machine.score_samples(other)
    other[3, 2] = 10**400
    for method in (machine.score_samples, machine.fit):
        with pytest.raises(ValueError, match="X must hold numbers of double precision"):
            method(other)
