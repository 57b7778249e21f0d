"""What all experiments share: options of the command line, and the file of commands."""

import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

FOLDER = Path(__file__).parents[2] / "scripts" / "experiments"
SCRIPTS = sorted(p.stem for p in FOLDER.glob("[a-z]*.py") if p.stem != "experiment")  # shared
PAPERS = FOLDER.parents[1] / "docs" / "papers"
PAGES = [*sorted(FOLDER.glob("*.md")), PAPERS / "finemapping.md", PAPERS / "index.md"]
# Nothing in them is random.
FIXED = ("uai_instances",)


@pytest.fixture(scope="session")
def options(load):
    """A function that gives the options of a script that its --help names."""
    pytest.importorskip("matplotlib")

    def of(name, capsys):
        with pytest.raises(SystemExit) as end:
            load(f"experiments/{name}").main(["--help"])
        assert end.value.code == 0
        return set(re.findall(r"--[a-z][a-z0-9-]*", capsys.readouterr().out))

    return of


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_is_quick_if_asked_and_has_a_seed(name, options, capsys):
    known = options(name, capsys)
    assert "--quick" in known
    assert "--seed" in known or name in FIXED


def test_commands_call_scripts_with_options_that_they_have(load, options, capsys):
    lines = load("experiments/reproduce").lines()
    assert len({line["name"] for line in lines}) == len(lines)
    known = {}
    for line in lines:
        assert all(line.values()), line["name"]
        script, *words = shlex.split(line["command"])
        name = script.removesuffix(".py")
        assert name in SCRIPTS
        known[name] = known.get(name) or options(name, capsys)
        assert {word for word in words if word.startswith("--")} <= known[name], line["name"]
    # Every script has a command, but for the one that runs them.
    assert set(known) == set(SCRIPTS) - {"reproduce"}
    cells = [line["name"] for line in lines if line["what"].startswith("Tables 1 to 3")]
    assert len(cells) == 6 * (8 + 1)


def test_reproduce_runs_what_is_named(load, monkeypatch, capsys):
    script, ran = load("experiments/reproduce"), []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: ran.append(command[1:]))
    script.main([])
    assert not ran and "ep_spike_slab.py paper" in capsys.readouterr().out
    script.main(["ep-f*", "nguyen-figure-1", "--quick", "--seed", "3"])
    scripts = {command[0]: command[1:] for command in ran}
    assert set(scripts) == {f"scripts/experiments/{k}.py" for k in ("ep_spike_slab", "fvbm_bslm")}
    assert all(words[-3:] == ["--quick", "--seed", "3"] for words in scripts.values())
    with pytest.raises(ValueError, match="no name in commands"):
        script.main(["ping-x"])


def words_of(command):
    """A script and its options, without files, folders and threads."""
    plain = re.sub(r"--(output|data|threads) \S+", "", command)
    script, *words = shlex.split(plain)
    return script, sorted(w for w in words if not (w.isupper() or w.endswith(".npz")))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_commands_on_pages_are_in_the_file(path, load):
    known = [words_of(line["command"]) for line in load("experiments/reproduce").lines()]
    text = path.read_text().replace("\\\n", "")
    # In backquotes, where lines may be broken, or on lines of their own.
    found = re.findall(r"`(?:scripts/experiments/)?(\w+\.py [^`]+)`", text)
    found += re.findall(r"^ {4}python scripts/experiments/(.+)$", text, re.MULTILINE)
    for command in found:
        if command.split(".py")[0] in set(SCRIPTS) - {"reproduce"}:
            assert words_of(command) in known, command


# The paper's Table 1 and section VI.
TRAMEL = {"batch_size": 100, "l2": 0.001, "momentum": 0.5, "n_sweeps": 3, "weight_scale": 0.001}
FACES = TRAMEL | {"learning_rate": 0.005, "batch_size": 20, "l2": 0.01}


@pytest.mark.parametrize(
    ("name", "words", "settings"),
    [
        ("landscape", ["--paper"], TRAMEL | {"learning_rate": 0.005, "centred": False}),
        ("landscape", [], TRAMEL | {"learning_rate": 0.05, "centred": True}),
        ("landscape", ["--paper", "--dataset", "faces"], FACES),
        ("adaptive_tap", [], TRAMEL | {"learning_rate": 0.05}),
    ],
)
def test_settings_of_published_figures_do_not_follow_defaults(load, name, words, settings):
    script = load(f"experiments/{name}")
    options = script.parser().parse_args(words)
    arguments = (options, 1) if name == "landscape" else ("tap", 3, options)
    learner = script.learner(*arguments)
    found = learner.get_params()
    assert {key: found[key] for key in settings} == pytest.approx(settings)


def tables(text):
    """The tables of a page in Markdown, as rows of cells, without the lines below headers."""
    rows = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not set("".join(cells)) <= set("-: "):
                rows.append(cells)
        elif rows:
            yield rows
            rows = []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_tables_fit_a_page_1280_pixels_wide(path):
    # The text is 700 pixels wide between its bars: 88 characters of 8 pixels. A column can be made
    # as narrow as its longest word, and two characters of margin.
    for rows in tables(path.read_text()):
        assert len({len(row) for row in rows}) == 1, rows[0]
        columns = (" ".join(column).replace("`", "").split() for column in zip(*rows, strict=True))
        longest = [max(map(len, words), default=0) for words in columns]
        assert sum(longest) + 2 * len(longest) <= 88, rows[0]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_pages_begin_with_what_came_out(path):
    # Three sentences with figures at least, before the first table, list, command or section.
    _, first, *_ = path.read_text().split("\n\n")
    assert len(re.findall(r"[.?](?:\s|$)", first)) >= 3, path
    assert len(re.findall(r"\d+", first)) >= 3, path


def test_images_of_the_papers(load, tmp_path):
    experiment, rng = load("experiments/experiment"), np.random.default_rng(0)
    upright = (rng.random((4, 28, 28)) < 0.3).astype(np.uint8)
    stored = (1 - upright).transpose(0, 2, 1).reshape(4, 784)
    savemat(tmp_path / "caltech101_silhouettes_28_split1.mat", {"val_data": stored})
    X = experiment.silhouettes(tmp_path, "validation")
    np.testing.assert_array_equal(X.reshape(4, 28, 28), upright)
    faces = rng.integers(0, 256, (5, 361), dtype=np.uint8)
    np.savez(tmp_path / "cbcl_faces_19x19.npz", faces_train=faces)
    images = experiment.images("faces", tmp_path, "train")
    np.testing.assert_array_equal(images.X, faces / np.float32(255))
    assert images.shape == (19, 19) and X.dtype == images.X.dtype == np.float32
    with pytest.raises(FileNotFoundError, match="pass --data or set FASTMF_DATA"):
        experiment.silhouettes(tmp_path / "elsewhere", "train")
