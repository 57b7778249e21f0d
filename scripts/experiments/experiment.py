"""What the experiments share: their command line, tables and pictures, and how they end."""

import argparse
import csv
import sys


def parser(text, epilog=None):
    """A command line that keeps the lines of its texts."""
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
    """Call `main`; what the user can mend, or has stopped, ends in a sentence."""
    try:
        main()
    except (FileNotFoundError, ValueError, ImportError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(interrupted)
