"""The examples of the README and of CONTRIBUTING.md run as they stand; what they link exists."""

import re

import pytest
from readme import BLOCKS, PAGES, ROOT, example


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of two epochs
@pytest.mark.parametrize(("page", "number"), BLOCKS)
def test_example(page, number, capsys):
    assert "mf" in example(page, number)


def test_there_are_examples():
    assert [page for page, _ in BLOCKS] == ["README.md", "CONTRIBUTING.md"]


@pytest.mark.parametrize("page", [*PAGES, "scripts/SPEED.md"])
def test_links_lead_to_files_and_headings(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    for link in links:
        file, _, heading = link.partition("#")
        target = (ROOT / page).parent / file
        assert target.is_file(), link
        if heading:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.M)
            assert heading in [h.lower().replace(" ", "-") for h in headings], link
    assert links or page != "README.md"


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_named_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:fastmf|tests|scripts|asv_bench)/[\w/.]*)`", text)
    assert len(named) >= 8
    named = [name for name in named if not re.search("NAME|FILE|FAMILY|ROOM", name)]
    assert [name for name in named if not (ROOT / name).exists()] == []
