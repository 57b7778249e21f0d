"""The page of a network from a table."""

import csv
import gzip
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import fastmf as mf
from fastmf.cli import main
from fastmf.cli.network import read_items
from tests.estimators.networks.test_resampling import ratings


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Ratings with names, two groups, weights, and a cell that is empty."""
    monkeypatch.chdir(tmp_path)
    X, rng = ratings(300), np.random.default_rng(0)
    words = np.array(["a <few>", "some", "many", "too many"])[X]
    lines = ["mood,sleep,pain | back,energy,who,times"]
    for row, (a, _, c, d) in zip(words, X, strict=True):
        who, times = "old" if rng.random() < 0.5 else "young", rng.integers(1, 4)
        lines.append(f"{a},{row[1]},{c},{d},{who},{times}")
    lines[3] = lines[3].replace(lines[3].split(",")[0], "NA", 1)
    (tmp_path / "t.csv").write_text("\n".join(lines))
    return tmp_path / "t.csv"


def run(*options):
    return main(["network", "t.csv", "--ignore", "who", "times", "sleep", *map(str, options)])


def scores():
    columns = read_items("t.csv")
    chosen = [columns[name] for name in ("mood", "pain | back", "energy")]
    places = {
        value: k for k, value in enumerate(["a <few>", "some", "many", "too many"])
    } | {None: np.nan}  # fmt: skip
    return np.array([[places.get(x, x) for x in column] for column in chosen], float).T


def test_page_in_html_holds_everything(table, capsys):
    assert run("--bootstraps", 5) == 0
    text = (table.parent / "network.html").read_text()
    sections = "Table", "Network", "Couplings", "Edges", "Items", "Stability"
    assert re.findall("<h2>(.*?)</h2>", text) == list(sections)
    assert text.count("data:image/svg+xml;base64,") == 2
    assert 'src="http' not in text and "<few>" not in text
    captured = capsys.readouterr()
    assert captured.err.count("fastmf:") == 3 and "fastmf: fitting" in captured.err
    assert "3 items, 300 rows" in captured.out
    assert "rows left out for them" in text and run("--quiet") == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["t.html", "./t.html"])
def test_the_table_is_not_overwritten(table, capsys, name):
    before = table.read_text()
    assert run("--output", name) == 1
    assert "would replace a file that is read" in capsys.readouterr().err
    assert table.read_text() == before and len(list(table.parent.iterdir())) == 1


def test_page_tells_of_the_penalty(table):
    assert run("-q", "--l2", 0.01) == 0
    assert "ridge penalty of 0.01" in (table.parent / "network.html").read_text()


def test_numbers_are_those_of_the_machine(table):
    assert run("-q") == 0
    X = scores()
    machine = mf.OrdinalMachine()
    kept = X[~np.isnan(X).any(1)]
    edges = machine.fit(kept.astype(int)).edge_inclusion()
    with open("network.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["first"] for row in rows] == ["mood", "mood", "pain | back"]
    pairs = np.triu_indices(3, 1)
    for name in ("mean", "std", "probability", "log_bayes_factor"):
        found = [float(row[name]) for row in rows]
        np.testing.assert_allclose(found, getattr(edges, name)[pairs], rtol=1e-4)


def test_page_compares_groups(table):
    options = "t.csv", "--group", "who", "--weight", "times", "--ignore", "sleep"
    assert main(["network", *options, "-q", "--permutations", "9", "-o", "report.html"]) == 0
    text = (table.parent / "report.html").read_text()
    assert "<h2>Groups old and young</h2>" in text and "By 9 permutations" in text
    columns = read_items("t.csv")
    groups, weights = np.array(columns["who"]), np.array(columns["times"], float)
    X, fits = scores(), []
    for name in ("old", "young"):
        own = (groups == name) & ~np.isnan(X).any(1)
        fits.append(mf.OrdinalMachine().fit(X[own].astype(int), sample_weight=weights[own]))
    test = mf.compare_groups(*fits).omnibus
    assert f"chi-squared {test.statistic:.1f} with 3 degrees" in text


def test_binary_items_and_rows_that_are_summed_over(table):
    lines = [line.split(",") for line in table.read_text().splitlines()]
    rows = [lines[0][:2] + lines[0][4:5]]
    answers = ["" if k == 5 else "yes" if k % 3 else "no" for k in range(len(lines) - 1)]
    rows += [[line[0], own, line[4]] for line, own in zip(lines[1:], answers, strict=True)]
    (table.parent / "t.csv").write_text("\n".join(map(",".join, rows)))
    assert main(["network", "t.csv", "--missing", "em", "-q", "-o", "n.html"]) == 0
    text = (table.parent / "n.html").read_text()
    assert "3, binary" in text and "empty cells</th><td>2</td>" in text
    assert main(["network", "t.csv", "--missing", "error", "-q"]) == 1


@pytest.mark.parametrize(
    "options, message",
    [
        (["--group", "age"], "no column 'age'"),
        (["--output", "n.pdf"], "must end in .html"),
        (["--permutations", "-1"], "--permutations"),
        (["--permutations", "9"], "--group"),
        (["--weight", "who"], "must hold numbers"),
        (["--ignore", "mood", "sleep", "pain | back"], "at least two items"),
        ([], "column 'energy'"),
    ],
)
def test_what_cannot_be_done_is_said(table, capsys, options, message):
    text = table.read_text().splitlines()
    if not options:  # a column of measurements
        text = [text[0]] + [
            ",".join([*line.split(",")[:3], str(k / 7), *line.split(",")[4:]])
            for k, line in enumerate(text[1:])
        ]
        table.write_text("\n".join(text))
    more = [] if "--ignore" in options else ["--ignore", "sleep", "who", "times"]
    if "--weight" in options:
        more = ["--ignore", "sleep"]
    if "--ignore" in options:
        options = [*options, "who", "times"]
    assert main(["network", "t.csv", *options, *more]) == 1
    assert message in capsys.readouterr().err


def test_files_that_are_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["network", "x.npy"]) == 1 and main(["network", "none.csv"]) == 1


@pytest.mark.parametrize(
    "text, options, message",
    [
        ("a,b\nno,1\nNo,2\nyes,1\n", [], "upper and lower case alone, such as 'No' and 'no'"),
        ("a,a,b\n1,2,1\n", [], "got 'a' more than once"), ("a,b\n", [], "rows below"),
        ("a,b\n1,2\n1\n", [], "line 3 has 1 cells"), (",a,\n1,2,3\n", [], "name all columns"),
        ("a,b\n1,2\n", ["--missing", "em", "--bootstraps", "9"], "are of complete rows"),
        ("a,b,g\n" + "".join(f"{k % 2},{k % 3},{k}\n" for k in range(30)), ["--group", "g"],
         "column 'g' has 30 different values, groups are 20 at most"),
    ],
)  # fmt: skip
def test_values_that_are_a_mistake_are_refused(
    tmp_path, monkeypatch, capsys, text, options, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(text)
    assert main(["network", "t.csv", *options]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("begin", ["", "\ufeff", "# by hand\n"])
def test_items_of_other_programs(tmp_path, separator, end, begin):
    lines = ['"müde"', "b, c", '"d; e"'], ["1", '"?"', "none"], ["0", '"2"', '"so; so"']
    lines = [
        separator.join(f'"{cell}"' if "," in cell else cell for cell in line) for line in lines
    ]
    text = begin + end.join(lines)
    for name, convert in (("t.tsv", bytes), ("t.csv.gz", gzip.compress)):
        (tmp_path / name).write_bytes(convert(text.encode()))
        columns = read_items(tmp_path / name)
        # "none" is an answer beside words, and a missing value beside numbers.
        assert columns == {
            "müde": ["1", "0"], "b, c": [None, "2"], "d; e": ["none", "so; so"],
        }  # fmt: skip


def test_decimal_commas_are_numbers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X = ratings(200)[:, [0, 2, 3]]
    lines = [";".join(f"{x + 8},5" for x in row) for row in X]  # 8,5 before 10,5
    (tmp_path / "t.csv").write_text("\n".join(["a;b;c", *lines]))
    assert read_items("t.csv")["a"] == [f"{x + 8}.5" for x in X[:, 0]]
    assert main(["network", "t.csv", "-q"]) == 0 and "warning" not in capsys.readouterr().err
    with open("network.csv", newline="") as file:
        found = [float(row["mean"]) for row in csv.DictReader(file)]
    expected = mf.OrdinalMachine().fit(X).edge_inclusion().mean[np.triu_indices(3, 1)]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("code", [99, -9])
def test_codes_of_missing_values_are_noticed(tmp_path, monkeypatch, capsys, code):
    monkeypatch.chdir(tmp_path)
    X = np.minimum(ratings(200)[:, [0, 2, 3]], 2)
    X[:6, 1:] = code
    lines = [",".join(map(str, row)) for row in X]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c", *lines]))
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["network", "t.csv", "-q"]) == 0
    error = capsys.readouterr().err
    assert error.count("warning") == 1 and "not evenly spaced, in columns 'b', 'c'" in error
    assert f"{code}" in error


def test_names_of_rows_and_separators_at_the_end_are_no_items(tmp_path):
    (tmp_path / "t.csv").write_text(",a,b,\n1,0,none,\n2,1,5,\n")
    columns = read_items(tmp_path / "t.csv")
    assert columns == {"a": ["0", "1"], "b": [None, "5"]}
    (tmp_path / "t.csv").write_text('"a","b"\n"x",0,none\n"y",1,5\n')  # R's write.table
    assert read_items(tmp_path / "t.csv") == columns


def test_order_of_words_is_said(table, capsys):
    text = table.read_text()
    for k, word in enumerate(["low", "medium", "high"]):
        text = re.sub(rf"^((?:[^,]*,){{3}}){k},", rf"\g<1>{word},", text, flags=re.M)
    table.write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert run("-q") == 0
    error = capsys.readouterr().err
    assert "column 'energy': high, low, medium" in error and error.count("warning") == 1


def test_names_are_escaped_and_separated_items_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(150, 1)) + rng.normal(size=(150, 3)) > 0).astype(int)
    who = np.where(np.arange(150) % 2, "<b>old</b>", "young & new")
    names = ["<script>alert(1)</script>", "müde, matt", 'a "b" & c', "who"]
    with open("t.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names, *np.column_stack([X, who])])
    assert main(["network", "t.csv", "-q", "--group", "who"]) == 0
    page = Path("network.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)" in page and "müde, matt" in page
    assert "<script>alert(1)" not in page and "<b>old" not in page
    X[:, 1] = X[:, 0]
    with open("t.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names[:3], *X])
    assert main(["network", "t.csv", "-q"]) != 0
    assert "(items <script>alert(1)</script>, müde, matt): give --l2" in capsys.readouterr().err
