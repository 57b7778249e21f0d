"""Common parts of the experiments: command line, tables, figures, and handling of errors."""

import argparse
import csv
import sys


def parser(text, epilog=None):
    """A parser of the command line that keeps the line breaks of its texts."""
    return argparse.ArgumentParser(
        description=text, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def table(path, header, rows):
    """Write rows below a header, as CSV."""
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def picture(drawing, path):
    """Write a figure, or the figure of axes, as PNG."""
    getattr(drawing, "figure", drawing).savefig(path, dpi=150)


def run(main, interrupted="interrupted"):
    """Call `main`; errors in data and options, and interruption, end with a message."""
    try:
        main()
    except (FileNotFoundError, ValueError, ImportError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(interrupted)
