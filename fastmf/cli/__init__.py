"""The command `fastmf`: train machines on files of data, apply and describe them."""

from fastmf.cli.command import main

__all__ = ["main"]
