import base64
import re
import sys
from unittest.mock import MagicMock

import pytest

from fastmf.cli import _digits, demo, main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "report"
    assert main(["demo", "--quick", "--quiet", "--output", str(folder)]) == 0
    return folder


def test_the_page_holds_all_figures_and_needs_nothing_else(folder):
    page = (folder / "index.html").read_text(encoding="utf-8")
    embedded = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    pictures = sorted(path.read_bytes() for path in folder.glob("*.png"))
    assert len(pictures) == 7
    assert sorted(map(base64.b64decode, embedded)) == pictures
    assert not re.search(r'(src|href)="(?!data:)', page) and "url(" not in page
    assert sorted(path.name for path in folder.iterdir() if path.suffix != ".png") == ["index.html"]


def test_the_page_gives_settings_and_numbers(folder):
    page = (folder / "index.html").read_text(encoding="utf-8")
    text = re.sub(r"<[^>]+>", " ", page)
    assert (
        f"on {_digits.N_TRAIN} handwritten digits".split()
        == text.split()[text.split().index("on") : text.split().index("on") + 4]
    )
    for name in ("RBM (TAP)", "pointwise optimal", "nearest neighbour", "learning rate"):
        assert name in text
    cells = re.findall(r"<td[^>]*>(0\.\d{3})</td>", page)
    assert len(cells) == 3 * len(_digits.FLIP_PROBABILITY)
    assert page.count('class="best"') >= len(_digits.FLIP_PROBABILITY)


def test_without_matplotlib_it_says_so_before_learning(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "experiment", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["demo", "--output", str(tmp_path / "report")]) != 0
    assert "pip install 'fastmf[plot]'" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


def test_no_method_sees_the_digits_set_aside(monkeypatch):
    seen = []

    class Stop(Exception):
        pass

    class Spy:
        def __init__(self, **options):
            pass

        def fit(self, X, validation_data):
            seen.append((X, validation_data))
            if len(seen) == 2:
                raise Stop
            return self

    monkeypatch.setattr("fastmf.GeneralizedRBM", Spy)
    monkeypatch.setattr(_digits, "get_context", MagicMock())  # nothing to compile
    with pytest.raises(Stop):
        _digits.experiment(quick=True, quiet=True)
    for X, test in seen:
        assert len(X) == _digits.N_TRAIN and len(X) + len(test) == 1797
        rows = {row.tobytes() for row in seen[1][0]}
    # The grey digits are all different.
    assert not rows & {row.tobytes() for row in seen[1][1]}
