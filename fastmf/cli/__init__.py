"""The command line `fastmf`: train machines on files of data, apply them, and describe files."""

from fastmf.cli.command import main

__all__ = ["main"]
