import base64
import re
import shlex
import sys
from html import unescape
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from fastmf import GeneralizedRBM, exact
from fastmf.cli import demo, main
from fastmf.cli.command import parser
from fastmf.datasets import load_digits


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "report"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo.Demo, "n_draws", 1)
        assert main(["demo", "--quick", "--quiet", "--output", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def page(folder):
    return (folder / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def text(page):
    body = page[page.index("<body>") :]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


class Elements(HTMLParser):
    """Every element with its attributes, and a check that all are closed."""

    def __init__(self, page):
        super().__init__()
        self.found, self.open = [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in ("img", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def test_the_page_needs_no_other_file(folder, page):
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    assert "url(" not in page and "@import" not in page and "<script" not in page
    assert sorted(path.name for path in folder.iterdir()) == [
        "binary.npz", "index.html", "real.npz"
    ]  # fmt: skip


def test_every_image_is_valid_and_described(page):
    images = Elements(page).all("img")
    assert len(images) == 6 + 2 + len(demo.FLIP_PROBABILITY)
    for image in images:
        (data,) = re.fullmatch(r"data:image/svg\+xml;base64,(.+)", image["src"]).groups()
        content = base64.b64decode(data)
        assert len(image["alt"].split()) >= 2
        assert ElementTree.fromstring(content).tag == "{http://www.w3.org/2000/svg}svg"
        assert b"prefers-color-scheme" in content and b"#000000" not in content


def test_headings_tables_and_links_have_what_readers_of_screens_need(page):
    elements = Elements(page)
    assert elements.all("html") == [{"lang": "en"}]
    assert len(elements.all("h1")) == 1
    sections = [attributes["id"] for attributes in elements.all("section")]
    links = [attributes["href"] for attributes in elements.all("a")]
    assert links == [f"#{name}" for name in sections] and len(links) == 8
    assert len(elements.all("h2")) == len(sections)
    assert all(attributes.get("scope") in ("row", "col") for attributes in elements.all("th"))
    assert page.count("<tr><td") == 0  # each row has a header


def test_the_page_gives_settings_and_numbers(text):
    assert f"on {1400} handwritten digits" in text
    for name in ("RBM (TAP)", "pointwise optimal", "nearest neighbour", "learning_rate="):
        assert name in text
    for p in demo.FLIP_PROBABILITY:
        assert re.search(rf" {p:g} (-?\d\.\d{{3}} ){{3}}(RBM|pointwise|nearest)", text)
        assert f"with probability p = {p:g}," in text
    assert re.search(r"(converged|not converged): forward and reverse estimates are", text)
    assert "--quick" in text and "chosen by this very score" not in text


def test_log_partitions_are_compared_with_the_exact_one(text):
    # 16 hidden units are enumerated.
    value = float(re.search(r" exact (-?\d+\.\d{3}) \+0\.000 ", text)[1])
    annealed, error = map(float, re.search(r" AIS (-?\d+\.\d{3}) (\d\.\d+) ", text).groups())
    assert abs(annealed - value) < 5 * error + 0.01


def test_what_the_page_says_to_type_works(folder, page, monkeypatch):
    commands, program = (
        unescape(re.search(rf'<code class="{kind}">(.*?)</code>', page, re.DOTALL)[1])
        for kind in ("shell", "python")
    )
    for command in commands.splitlines():
        name, *arguments = shlex.split(command)
        assert name == "fastmf" and callable(parser(arguments[0]).parse_args(arguments).run)
    assert main(shlex.split(commands.splitlines()[0])[1:]) == 0
    monkeypatch.chdir(folder.parent)
    exec(program, {})
    assert (folder.parent / "digits.png").read_bytes().startswith(b"\x89PNG")


def test_likelihoods_are_those_of_the_models(folder, text):
    machine = GeneralizedRBM.load(folder / "binary.npz")
    order = np.random.default_rng(0).permutation(1797)
    test = load_digits(binary=True).X[order[1400:]]
    value = exact(machine.model_, averages=False).log_partition
    expected = machine.score_samples(test, value).mean()
    found = re.search(r"machine, log Z by AIS (-?\d+\.\d\d) ", text)[1]
    assert abs(float(found) - expected) < 0.1
    on = load_digits(binary=True).X[order[:1400]].mean(0).clip(1e-3, 1 - 1e-3)
    pixels = np.where(test == 1, np.log(on), np.log1p(-on)).sum(1).mean()
    found = re.search(r"independent pixels (-?\d+\.\d\d) ", text)[1]
    assert abs(float(found) - pixels) < 0.1


def test_without_matplotlib_it_says_so_before_learning(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "Demo", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["demo", "--output", str(tmp_path / "report")]) != 0
    assert "pip install matplotlib" in capsys.readouterr().err
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
    with pytest.raises(Stop):
        demo.Demo(quick=True, quiet=True).learn()
    for X, test in seen:
        assert len(X) == 1400 and len(X) + len(test) == 1797
        rows = {row.tobytes() for row in seen[1][0]}
    # The grey digits are all different.
    assert not rows & {row.tobytes() for row in seen[1][1]}
