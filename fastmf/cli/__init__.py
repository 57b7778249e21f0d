"""The command `fastmf`: from files of data to trained machines, and back."""

from fastmf.cli.command import main

__all__ = ["main"]
