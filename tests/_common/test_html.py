from xml.etree import ElementTree

import numpy as np
import pytest

from fastmf._common.html import extent, section, table


def test_text_is_escaped():
    page = section("<a> & b", table([("x < y", '"q" & <script>')], ("<h>", "&")))
    root = ElementTree.fromstring(page)
    assert "<script>" not in page
    assert [cell.text for cell in root.iter("td")] == ['"q" & <script>']
    assert [cell.text for cell in root.iter("th")] == ["<h>", "&", "x < y"]
    assert root.find("strong").text == "<a> & b"


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
