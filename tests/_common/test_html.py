from xml.etree import ElementTree

import numpy as np
import pytest

from fastmf._common.html import counts, extent, number, section, table


def test_text_is_escaped():
    page = section("<a> & b", table([("x < y", '"q" & <script>')], ("<h>", "&")))
    root = ElementTree.fromstring(page)
    assert "<script>" not in page
    assert [cell.text for cell in root.iter("td")] == ['"q" & <script>']
    assert [cell.text for cell in root.iter("th")] == ["<h>", "&", "x < y"]
    assert root.find("strong").text == "<a> & b"


def test_a_table_has_a_line_for_each_row():
    root = ElementTree.fromstring(table([("a", "1"), ("b", "2")]))
    assert [[c.text for c in row] for row in root.iter("tr")] == [["a", "1"], ["b", "2"]]
    assert root.find("thead") is None


@pytest.mark.parametrize(
    "values, expected",
    [
        ([], ""),
        (1.5, "1.5"),
        ([2.0, 2.0], "2"),
        ([3, -1], "-1 to 3"),
        ([-np.inf, 0.0], "-inf to 0"),
        ([1.00001, 1.00002], "1"),
    ],
)
def test_extent(values, expected):
    assert extent(values) == expected


def test_number():
    assert [number(x) for x in (None, 0.123456, np.float32(2), np.nan)] == [
        "",
        "0.1235",
        "2",
        "nan",
    ]


def test_counts_begin_with_the_most_frequent():
    assert counts(np.array(["a", "b", "b"])) == [("b", "2"), ("a", "1")]
    assert counts("one") == [("one", "1")]
