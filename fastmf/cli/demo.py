"""`fastmf demo`: train two machines on digits and write a report."""

from pathlib import Path

from fastmf.cli import _options, report
from fastmf.cli._digits import FLIP_PROBABILITY, experiment

DESCRIPTION = """\
Train a binary and a real-valued machine on the 8 x 8 digits that come with scikit-learn, restore
noisy digits that they have never seen, and write a report: one page of HTML with all figures, and
beside it the machines.
"""

EPILOG = """\
example:
  fastmf demo --output report
      then open report/index.html in a browser

Needs scikit-learn and matplotlib: pip install 'fastmf[sklearn,plot,progress]'
"""


def add(commands):
    """Add the command to a parser."""
    demo = _options.command(
        commands,
        run,
        "demo",
        help="learn digits, denoise them, and write a report",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    _options.add_output(demo, "report", metavar="FOLDER")
    demo.add_argument("--quick", action="store_true", help="small machines, little learning")
    _options.add_seed(demo)
    _options.add_quiet(demo, "progress bars")


def run(arguments):
    """Train, denoise, write the report and print its path and the scores."""
    from fastmf.plotting._axes import axes

    axes(None, (1, 1))  # without matplotlib it fails here rather than after learning
    folder = Path(arguments.output)
    folder.mkdir(parents=True, exist_ok=True)
    outcome = experiment(seed=arguments.seed, quick=arguments.quick, quiet=arguments.quiet)
    page = report.write(folder, outcome)
    for name, scores in outcome.scores.items():
        print(f"{name:28}" + "".join(f"{score:7.3f}" for score in scores))
    print(f"{page}: Matthews correlations as above at p = {', '.join(map(str, FLIP_PROBABILITY))}")
