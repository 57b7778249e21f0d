"""Whatever arrays come, `tap` either solves or says what is wrong."""

import sys
from pathlib import Path

import forks
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import fastmf as mf
from fastmf._common import arguments as check
from fastmf._common import progress
from fastmf._common.progress import followed

MODEL = mf.RBM(np.full((3, 2), 0.5), mf.Bernoulli(np.zeros(3)), mf.Bernoulli(np.zeros(2)))

ANY_ARRAY = arrays(
    dtype=st.sampled_from([np.float64, np.float32, np.int64, np.bool_, np.uint8]),
    shape=st.one_of(
        st.just((3,)), st.just((2, 3)), array_shapes(max_dims=3, min_side=0, max_side=4)
    ),
)


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(["init", "field", "precision", "clamp"]),
    value=ANY_ARRAY,
    order=st.sampled_from(["C", "F"]),
)
def test_any_array(name, value, order):
    value = np.asarray(value, order=order)
    value.flags.writeable = False
    with np.errstate(all="raise", under="ignore"):
        try:
            result = mf.tap(MODEL, max_iter=20, **{name: value})
        except (ValueError, TypeError) as error:
            assert name in str(error)
            return
    assert value.shape in ((3,), (len(value), 3))
    for part in (*result.mean, *result.var):
        assert np.isfinite(part).all()
    assert not np.isnan(result.log_partition).any()


@settings(max_examples=50, deadline=None)
@given(
    name=st.sampled_from(["damping", "tol", "max_iter", "n_threads"]),
    value=st.floats() | st.integers(-3, 3) | st.sampled_from([None, "", "2", True, False]),
)
def test_any_setting(name, value):
    try:
        result = mf.tap(MODEL, **{"max_iter": 20, name: value})
    except (ValueError, TypeError) as error:
        assert name in str(error)
        return
    assert np.isfinite(result.mean[0]).all()


class Frame:
    """As those of pandas are: an array that has `mean` and `var`, and is no earlier result."""

    def mean(self):
        return 0.0

    var = mean

    def __array__(self, dtype=None, copy=None):
        return np.full((2, 3), 0.25)


def test_a_frame_of_data_is_an_array():
    expected = mf.tap(MODEL, np.full((2, 3), 0.25), max_iter=3).mean[0]
    np.testing.assert_array_equal(mf.tap(MODEL, Frame(), max_iter=3).mean[0], expected)


def test_weights_of_rows():
    assert check.row_weights(None, 3) is None
    assert check.row_weights(2, 3).tolist() == [2.0, 2.0, 2.0]
    assert check.row_weights([0, 1, 2], 3).dtype == np.float64
    for bad, message in (
        ([1, np.nan, 1], "got nan in row 1"), ([1, 1, -1], "got -1 in row 2"),
        ([0, 0, 0], "zeros only"), ([1, 1], r"shape \(3,\)"), ([1e308] * 3, "finite sum"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"^sample_weight must .*{message}"):
            check.row_weights(bad, 3)


def test_flags_paths_and_seeds():
    assert check.flag("x", np.array(True)) is True and check.flag("x", 0) is False
    assert check.file_path("x", "name") == Path("name")
    for bad in (0, True, None, 1.0, b"name"):
        with pytest.raises(TypeError, match="x must be a str or a path"):
            check.file_path("x", bad)
    for bad in ("\ud800", "a\0b", ""):
        with pytest.raises(ValueError, match="x must be the name of a file"):
            check.file_path("x", bad)
    assert isinstance(check.generator(None, optional=True), np.random.Generator)
    with pytest.raises(ValueError, match=r"rng must be .* or a seed"):
        check.generator(-1)


# --- signs of progress of long calculations -------------------------------------------------------


def test_iterations_are_reported_every_few_seconds(monkeypatch, capsys):
    assert progress.reported(False) is None
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    report = progress.reported(True)
    for iteration, now[0] in enumerate([1.0, 6.0, 10.0, 11.5]):
        report(iteration, 0.25 - iteration)
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        "iteration 2", "iteration 4",
    ]  # fmt: skip


def test_steps_are_followed_by_a_bar_on_a_terminal_or_by_lines(monkeypatch, capsys):
    assert list(followed(range(3), "samples", False)) == [0, 1, 2]
    monkeypatch.setattr("fastmf._common.progress.SECONDS", 0.0)
    assert list(followed([5, 6], "samples", True)) == [5, 6]
    assert capsys.readouterr().err == "0/2 samples\n1/2 samples\n"
    monkeypatch.setattr("fastmf._common.progress.SECONDS", np.inf)
    assert list(followed([5, 6], "samples", True)) == [5, 6]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for step in followed(range(100), "samples", True):
        if step == 3:  # a loop that is left ends the bar
            break
    shown = capsys.readouterr().err
    assert "samples" in shown and "100/100" not in shown and shown.endswith("\n")


@pytest.mark.parametrize("before", ["sys.stderr = None", "os.close(2)"])
def test_progress_without_a_stderr(before):
    code = f"""
import os, sys
from fastmf._common import progress
from fastmf._common.progress import followed, reported
{before}
progress.SECONDS = 0
assert list(followed(range(3), "steps", True)) == [0, 1, 2]
reported(True)(0, 1.0)
print("done", flush=True)
os._exit(0)
"""
    assert forks.fresh("-c", code).stdout == "done\n"
