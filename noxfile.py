#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2025.10.14"]
# ///
"""Sessions of nox: `nox -s tests-3.13`, `nox -l` for all. `make` does the same with one Python."""

import nox

nox.needs_version = ">=2025.10.14"
nox.options.default_venv_backend = "uv|virtualenv"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}


@nox.session(python=PYTHONS)
def tests(session):
    """All tests but the slow ones."""
    session.install("-e.[test]")
    session.run("pytest", *session.posargs, env=ENVIRONMENT)


@nox.session(python="3.11", default=False)
def oldest(session):
    """The tests with the oldest dependencies."""
    session.install("-c", ".ci/oldest.txt", "-e.[test]")
    session.run("pytest", *session.posargs, env=ENVIRONMENT)


@nox.session
def lint(session):
    """Ruff and mypy."""
    session.install("-e.[lint]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session(default=False)
def docs(session):
    """The pages of `docs/`; warnings are errors."""
    session.install("-e.[docs]")
    session.run("sphinx-build", "-W", "--keep-going", "docs", "build/docs", env=ENVIRONMENT)


@nox.session(default=False)
def build(session):
    """Wheel and source distribution, checked."""
    session.install("build", "twine")
    session.run("python", "-m", "build")
    session.run("twine", "check", "--strict", "dist/*")


if __name__ == "__main__":
    nox.main()
