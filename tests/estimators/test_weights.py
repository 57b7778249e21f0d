import numpy as np
import pytest

from fastmf.estimators._weights import checked_weights

X = np.zeros((3, 2))


def test_weights_are_doubles_one_a_row():
    assert checked_weights(None, X) is None
    weights = checked_weights([0, 1, 2], X)
    assert weights.dtype == np.float64 and list(weights) == [0, 1, 2]


@pytest.mark.parametrize("bad", [[1, 2], [1, -1, 1], [0, 0, 0], [1, np.nan, 1], [[1], [1], [1]]])
def test_bad_weights_are_refused(bad):
    with pytest.raises(ValueError, match=r"[Ww]eight"):
        checked_weights(bad, X)
