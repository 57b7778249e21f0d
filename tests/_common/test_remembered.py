import numpy as np
import pytest

from fastmf._common.remembered import remembered


@pytest.fixture
def square():
    """A remembered function, and its calls."""
    calls = []

    @remembered
    def square(x, y):
        calls.append((x, y))
        return x * x, y * y

    return square, calls


def test_a_call_with_equal_arrays_is_not_repeated(square):
    function, calls = square
    x = np.arange(3.0)
    first = function(x, x)
    assert function(x.copy(), x) is first
    assert len(calls) == 1


def test_arrays_may_be_changed_in_place(square):
    function, calls = square
    x, y = np.arange(3.0), np.ones(2)
    function(x, y)
    x[0] = 5
    np.testing.assert_array_equal(function(x, y)[0], [25, 1, 4])
    assert len(calls) == 2


def test_results_cannot_be_changed(square):
    function, _ = square
    with pytest.raises(ValueError, match="read-only"):
        function(np.ones(2), np.ones(2))[0][0] = 3
