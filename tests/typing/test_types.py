"""Public signatures have types, which agree with what they describe and suffice for a program."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fastmf

ROOT = Path(fastmf.__file__).parents[1]
CLIENT = Path(__file__).with_name("client.py")
STUBBED = ("datasets", "distributed", "estimators", "evaluation", "models", "plotting", "priors")
TIMEOUT = 600


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True,
        timeout=TIMEOUT,
    )  # fmt: skip


def names():
    """Public names, with those of the public parts."""
    for name in fastmf.__all__:
        value = getattr(fastmf, name)
        yield name
        if inspect.ismodule(value):
            yield from (inner for inner in value.__all__)


def test_the_client_uses_every_public_name():
    text = CLIENT.read_text(encoding="utf-8")
    assert sorted({name for name in names() if not re.search(rf"\b{name}\b", text)}) == []


def test_every_public_name_has_a_type():
    for part in ("", *STUBBED):
        module = fastmf if not part else __import__(f"fastmf.{part}", fromlist=["__all__"])
        stub = (ROOT / "fastmf" / part / "__init__.pyi").read_text(encoding="utf-8")
        missing = [name for name in module.__all__ if not re.search(rf"\b{name}\b", stub)]
        assert missing == [], f"fastmf/{part}/__init__.pyi"


STRICT = "--config-file=", "--strict", "--ignore-missing-imports", "--no-incremental"


@pytest.mark.slow
def test_the_client_and_the_types_themselves_pass_mypy_strict():
    pytest.importorskip("mypy")
    stubs = [ROOT / "fastmf" / part / "__init__.pyi" for part in ("", *STUBBED)]
    found = run("mypy", *STRICT, "--follow-imports=silent", CLIENT, *stubs)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.slow
def test_mistakes_are_found(tmp_path):
    """In each line of a client there is one."""
    pytest.importorskip("mypy")
    wrong = [
        "mf.tap(3)",
        "mf.tap(mf.load('x'), max_iter='2')",
        "mf.GeneralizedRBM(n_components='many')",
        "mf.GeneralizedRBM().denoise([[0]], noise=0.1)",
        "mf.nonsense",
        "mf.evaluation.log_partition_report(mf.load('x'), n_chains=[1])",
        "mf.SpikeSlabRegressor().coef_.sizes",
    ]
    client = tmp_path / "wrong.py"
    client.write_text("\n".join(["import fastmf as mf", *wrong, ""]))
    found = run("mypy", *STRICT, "--follow-imports=silent", client)
    lines = {int(line) for line in re.findall(r"wrong\.py:(\d+): error", found.stdout)}
    assert lines == set(range(2, 2 + len(wrong))), found.stdout


@pytest.mark.slow
def test_types_agree_with_the_code(tmp_path):
    """Names, kinds and defaults of all parameters, by mypy's stubtest."""
    pytest.importorskip("mypy")
    settings = tmp_path / "mypy.ini"
    settings.write_text(
        "[mypy]\nignore_missing_imports = True\n[mypy-numba.*]\nfollow_imports = skip\n"
        "[mypy-fastmf.*]\nignore_errors = True\n"
    )
    found = run(
        "mypy.stubtest", "--concise", "--ignore-missing-stub", "--mypy-config-file", settings,
        "fastmf",
    )  # fmt: skip
    # What has no stub is compared with itself, and NamedTuples with methods are not understood.
    assert "fastmf.priors.binary.Bernoulli.__new__" in found.stdout, found.stdout + found.stderr
    wrong = [line for line in found.stdout.splitlines() if is_public(line)]
    # Neither the layout of classes in memory nor the cache of a property is part of their types.
    untyped = "disjoint base", "cannot reconcile @property on stub"
    assert [line for line in wrong if not any(text in line for text in untyped)] == []


def is_public(line):
    """Whether a finding is about a name of a stub, such as "fastmf.evaluation.flip is ..."."""
    first, second, *_ = *line.partition(" ")[0].split(".")[1:], "", ""
    if first not in STUBBED:
        return first in fastmf._HOME
    modules = {path.stem for path in (ROOT / "fastmf" / first).iterdir()}
    return second not in modules and not second.startswith("_")
