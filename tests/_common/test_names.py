import numpy as np
import pytest

from fastmf._common.names import check_order, names_along

pd = pytest.importorskip("pandas")
NAMES = ["a", "b", "c"]


def test_names_are_those_of_all_parts():
    square = pd.DataFrame(np.eye(3), index=NAMES, columns=NAMES)
    assert names_along("R", [square]) == NAMES
    assert names_along("R", [square.iloc[1:, 1:], square.iloc[:1, :1]]) == ["b", "c", "a"]
    assert names_along("z", [pd.Series(1.0, index=NAMES)]) == NAMES
    with pytest.raises(ValueError, match="same names of rows and columns"):
        names_along("R", [square.iloc[[0, 2, 1]]])


@pytest.mark.parametrize("given", [np.eye(2), [[1, 0]], pd.DataFrame(np.eye(2)), pd.Series([1.0])])
def test_numbers_are_no_names(given):
    assert names_along("R", [given]) is None
    check_order("R", [given], NAMES, "z")


def test_the_first_difference_is_said():
    z = pd.Series(1.0, index=NAMES)
    check_order("z", [z], None, "X")
    check_order("z", [z], np.array(NAMES, object), "X")
    with pytest.raises(ValueError, match=r"order of X, got 'b' and 'd' in place 1: "):
        check_order("z", [z], ["a", "d", "c"], "X")
    with pytest.raises(ValueError, match="got 3 and 2 names"):
        check_order("z", [z], NAMES[:2], "X")
