"""What files say about the package agrees: versions, oldest dependencies, extras, papers."""

import re
import tomllib
from pathlib import Path

import pytest

import fastmf

ROOT = Path(fastmf.__file__).parents[1]
PROJECT = ROOT / "pyproject.toml"

pytestmark = pytest.mark.skipif(not PROJECT.exists(), reason="an installed package has no sources")


@pytest.fixture(scope="module")
def project():
    return tomllib.loads(PROJECT.read_text(encoding="utf-8"))


def floors(requirements):
    """Package -> oldest version, of requirements such as "numpy>=2.0"; others are left out."""
    found = (re.fullmatch(r"([\w-]+)(?:\[[\w,-]+\])? ?>=([\d.]+)", text) for text in requirements)
    return {match[1]: match[2] for match in found if match}


def needed(project):
    """Oldest versions of all that users install."""
    extras = project["project"]["optional-dependencies"]
    users = [r for name in ("sklearn", "plot", "progress", "distributed") for r in extras[name]]
    return floors([*project["project"]["dependencies"], *users])


def as_numbers(version):
    """A version without zeros at its end."""
    return tuple(int(part) for part in re.sub(r"(\.0+)+$", "", version).split("."))


def test_the_oldest_versions_are_those_that_are_tested(project):
    lines = (ROOT / ".ci" / "oldest.txt").read_text(encoding="utf-8").splitlines()
    tested = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    for companion in ("polars", "pyparsing", "pytest"):  # of older packages
        del tested[companion]
    assert tested.pop("distributed") == tested["dask"]
    expected = {name: as_numbers(version) for name, version in needed(project).items()}
    assert {name: as_numbers(version) for name, version in tested.items()} == expected


def test_conda_has_the_same_requirements(project):
    text = (ROOT / "conda" / "meta.yaml").read_text(encoding="utf-8")
    recipe = floors(re.findall(r"^    - ([\w-]+ >=[\d.]+)$", text, re.M))
    recipe["matplotlib"] = recipe.pop("matplotlib-base")
    assert recipe.pop("hatchling") == floors(project["build-system"]["requires"])["hatchling"]
    assert f">={recipe.pop('python')}" == project["project"]["requires-python"]
    assert recipe == needed(project)


def test_every_python_of_the_classifiers_is_tested(project):
    classifiers = " ".join(project["project"]["classifiers"])
    versions = re.findall(r"Python :: (3\.\d+)", classifiers)
    assert f">={versions[0]}" == project["project"]["requires-python"]
    session = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    assert re.findall(r'"(3\.\d+)"', re.search(r"PYTHONS = (.*)", session)[1]) == versions


def test_dependency_groups_are_extras(project):
    extras = project["project"]["optional-dependencies"]
    for name, (requirement,) in project["dependency-groups"].items():
        assert requirement == f"fastmf-models[{'all' if name == 'dev' else name}]"
        assert re.search(r"\[(\w+)\]", requirement)[1] in extras
    everything = re.search(r"\[(.*)\]", extras["all"][0])[1]
    assert set(everything.split(",")) == {*extras} - {"all"}


def test_citation_has_the_version_and_the_four_papers():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.*)$", text, re.M)[1] == fastmf.__version__
    for name in ("Tramel", "Ping", "Nguyen", "Hernández-Lobato"):
        assert f"family-names: {name}" in text


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "fastmf" / "py.typed").exists()
