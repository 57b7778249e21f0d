"""The report of the demo: one page of HTML that holds all figures and needs no other file."""

import base64
import platform
import shlex
from html import escape
from importlib.metadata import version
from io import BytesIO, StringIO

import fastmf
from fastmf._common import html
from fastmf._common.cores import n_cores
from fastmf.cli._digits import (
    ANNEALING,
    FLIP_PROBABILITY,
    N_DRAWS,
    N_GIBBS_SWEEPS,
    N_SHOWN,
    NOISE_VARIANCE,
    Outcome,
)
from fastmf.models._io import replacing

STYLE = """
:root { color-scheme: light dark; --text: #1f2328; --muted: #57606a; --line: #d0d7de;
        --page: #fff; --panel: #f6f8fa; --link: #0a58ca; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e6e6; --muted: #a3abb5; --line: #3d444d; --page: #16191d; --panel: #21262c;
          --link: #79b8ff; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--text); background: var(--page);
       max-width: 62rem; margin: 0 auto; padding: 2rem 1rem 3rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .6rem; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .5rem; padding-top: .8rem;
     border-top: 1px solid var(--line); }
p { max-width: 46rem; } a { color: var(--link); }
nav a { margin-right: 1rem; white-space: nowrap; }
figure { margin: 1rem 0; } figure img { width: 100%; height: auto; display: block; }
figcaption, caption { color: var(--muted); font-size: .92rem; text-align: left; max-width: 46rem; }
caption { padding-bottom: .4rem; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 0 2rem; align-items: start; }
.pair table { font-size: .92rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--line); }
th[scope=row], th:first-child { text-align: left; } th[scope=row] { font-weight: 400; }
thead th { border-bottom: 2px solid var(--muted); }
.strips { width: 100%; } .strips td, .strips th { border: 0; padding: .15rem .5rem .15rem 0; }
.strips td:nth-child(2) { width: 100%; }
.strips img { width: 100%; display: block; image-rendering: pixelated; }
pre { background: var(--panel); padding: .8rem 1rem; border-radius: 6px; overflow-x: auto; }
code { font: .9em ui-monospace, monospace; }
footer { color: var(--muted); font-size: .88rem; margin-top: 3rem; }
@media (max-width: 640px) {
  .pair { grid-template-columns: 1fr; } h1 { font-size: 1.5rem; }
  th, td { padding: .2rem .4rem; } table, .pair table { font-size: .85rem; }
  .strips { font-size: .75rem; } }
"""

# Figures follow the colours of the page. What matplotlib draws in black has no colour of its own.
FIGURE_STYLE = (
    "<style>svg{fill:currentColor;color:#1f2328}"
    "@media (prefers-color-scheme:dark){svg{color:#e6e6e6}}</style>"
)

SECTIONS = {
    "trained": "What was trained",
    "learning": "Learning",
    "fields": "Receptive fields",
    "samples": "Samples",
    "log-z": "Log-partition",
    "binary-noise": "Binary noise",
    "gaussian-noise": "Gaussian noise",
    "time": "Time taken",
    "next": "What to type next",
}


def write(folder, outcome):
    """Write the page and, beside it, the two machines."""
    outcome.binary.save(folder / "binary.npz")
    outcome.real.save(folder / "real.npz")
    page = folder / "index.html"
    with replacing(page) as file:
        file.write(_page(folder, outcome).encode())
    return page


def _page(folder, outcome: Outcome):
    height, width = outcome.shape
    sections = {
        "trained": _trained(outcome),
        "learning": _learning(outcome),
        "fields": _fields(outcome),
        "samples": _samples(outcome),
        "log-z": _log_partition(outcome),
        "binary-noise": _binary_noise(outcome),
        "gaussian-noise": _gaussian_noise(outcome),
        "time": _time(outcome),
        "next": _next(folder),
    }
    links = "\n".join(f'<a href="#{name}">{title}</a>' for name, title in SECTIONS.items())
    body = "\n".join(
        f'<section id="{name}">\n<h2>{SECTIONS[name]}</h2>\n{text}\n</section>'
        for name, text in sections.items()
    )
    quick = "<p><strong>Small machines that have learned little (--quick): results are poor."
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fastmf: digits learned, sampled and restored</title><style>{STYLE}</style></head><body>
<header><h1>Digits learned, sampled and restored</h1>
<p>Two restricted Boltzmann machines of {height * width} visible units were trained on
{outcome.n_train} handwritten digits of {height} &times; {width} pixels, and then used to remove
noise from {outcome.n_test} others, on which none was trained. Learning and denoising compute their
averages over the machines by deterministic mean-field (TAP) solutions, without sampling.</p>
{quick + "</strong></p>" if outcome.quick else ""}
<nav aria-label="Sections">{links}</nav></header>
<main>
{body}
</main>
<footer>Written by <code>fastmf demo</code>, fastmf {fastmf.__version__}. Method: E. W. Tramel,
M. Gabri&eacute;, A. Manoel, F. Caltagirone, F. Krzakala, <i>Deterministic and generalized framework
for unsupervised learning with restricted Boltzmann machines</i>, Phys. Rev. X 8 (2018) 041006.
Digits: E. Alpaydin, C. Kaynak, UCI repository, by way of scikit-learn.</footer>
</body></html>
"""


# --- sections -------------------------------------------------------------------------------------


def _trained(outcome):
    machines = (outcome.binary, outcome.real)
    rows = {
        "visible units": [m.visible.replace("_", "-") for m in machines],
        "hidden units": [f"{m.n_components} {m.hidden}" for m in machines],
        "epochs": [m.n_epochs for m in machines],
        "batch, and starts of TAP": [m.batch_size for m in machines],
        "TAP sweeps per step": [m.n_sweeps for m in machines],
        "learning rate, first to last": [
            " to ".join(f"{rate:g}" for rate in m.learning_rate) for m in machines
        ],
        "momentum; weight decay": [f"{m.momentum:g}; {m.l2:g}" for m in machines],
    }
    return f"""<p>The first machine sees binary digits: pixels above half of the largest grey level
are 1, all others 0. The second sees grey levels from 0 to 1. Its visible units are spike-and-slab
units: exactly 0 with some probability, as about half of the pixels are, or else a grey level of a
truncated Gaussian.</p>
{_table(rows, ["", "binary", "real-valued"])}"""


def _learning(outcome):
    figures = []
    for name, machine, more in (
        ("Binary machine", outcome.binary, ""),
        ("Real-valued machine", outcome.real, " It is a log density, not to be compared with the "
         "other machine's."),
    ):  # fmt: skip
        (first, last), (_, held_out) = (
            (machine.history_[key][0], machine.history_[key][-1])
            for key in ("log_likelihood", "validation_log_likelihood")
        )
        caption = (
            f"{name}: the TAP log-likelihood of 100 training digits goes from {first:.3f} to "
            f"{last:.3f} nats per unit, that of the other digits to {held_out:.3f}.{more}"
        )
        figures.append(_figure(_plotting().learning_curve(machine.history_), caption))
    return f"""<p>The log-likelihood after each epoch, divided by the number of visible and hidden
units. That of the other digits, the validation data, is only watched: it does not stop or change
learning.</p>
{_pair(figures)}"""


def _fields(outcome):
    n = min(40, outcome.binary.n_components, outcome.real.n_components)
    figures = [
        _figure(
            _plotting().receptive_fields(machine.weights_, outcome.shape, n_fields=n, columns=8),
            f"{name}: the {n} hidden units of largest weights, of {machine.n_components}.",
        )
        for name, machine in (
            ("Binary machine", outcome.binary),
            ("Real-valued machine", outcome.real),
        )
    ]
    return f"""<p>The weights of each hidden unit as an image. Red pixels have positive weights:
they are more probable when the unit is on. Blue ones are less probable.</p>
{_pair(figures)}"""


def _samples(outcome):
    rows = [(name, images) for name, images in outcome.samples.items()]
    caption = (
        f"Training digits, and samples of the binary machine: {N_SHOWN} Gibbs chains after "
        f"{N_GIBBS_SWEEPS} sweeps each from independent pixels. Samples resemble digits, not "
        "always one."
    )
    return _strips(rows, outcome.shape, caption)


def _log_partition(outcome):
    report = outcome.log_partitions
    reference = report[0]
    rows = {
        entry.name: [
            f"{entry.log_partition:.3f}",
            "" if entry.error is None else f"{entry.error:.3f}",
            f"{entry.log_partition - reference.log_partition:+.3f}",
            f"{entry.seconds:.2f}",
        ]
        for entry in report
    }
    likelihoods = {name: [f"{value:.2f}"] for name, value in outcome.likelihoods.items()}
    known = (
        "is enumerated, too"
        if reference.name == "exact"
        else f"cannot be enumerated over 2<sup>{outcome.binary.n_components}</sup> hidden states, "
        "so that the reference is annealed importance sampling (AIS)"
    )
    figure = _figure(
        _plotting().log_partitions(report),
        f"log Z of the binary machine by each method; dotted: {reference.name}. Bars are two "
        "standard errors.",
    )
    header = ["method", "log Z (nats)", "error (nats)", "off by (nats)", "time (s)"]
    ended = report["reverse AIS"].remark.split("; ", 2)[2]
    return f"""<p>log Z, which normalises the probabilities of the binary machine, {known}. AIS is
low on average, reverse AIS high: between them is the value, if both ends meet. After
{ANNEALING["n_steps"]} steps of {ANNEALING["n_chains"]} chains: {escape(ended)}.</p>
<p>NMF is naive mean field, TAP2 and TAP3 are the second and third order. Distinct solutions are
added up as phases (log-sum-exp), or the largest is taken, or their mean; "corrected" adds the terms
that TAP neglects in each solution.{_off_by(report)}</p>
{_pair([figure, _table(rows, header)])}
<p>Log-likelihoods of test digits depend on log Z: those of learning, above, take that of TAP.</p>
{_table(likelihoods, ["model", "log-likelihood of a test digit (nats)"])}"""


def _off_by(report):
    """A sentence on the errors of the main estimates."""
    names = {entry.name for entry in report} & {"TAP2, log-sum-exp", "TAP2, corrected"}
    errors = [
        f"{name} by {report[name].log_partition - report[0].log_partition:+.2f} nats"
        for name in sorted(names, reverse=True)
    ]
    return f" Here they are off by: {'; '.join(errors)}." if errors else ""


def _binary_noise(outcome):
    scores = outcome.scores
    rows = {}
    for k, p in enumerate(FLIP_PROBABILITY):
        at_p = {name: values[k] for name, values in scores.items()}
        rows[f"{p:g}"] = [*(f"{v:.3f}" for v in at_p.values()), max(at_p, key=lambda n: at_p[n])]
    curve = _figure(
        _plotting().denoising_accuracy(FLIP_PROBABILITY, scores),
        "Matthews correlation of estimate and truth against the probability of a flip.",
    )
    strips = "\n".join(
        _strips(
            [
                (name, shown, _score_at(scores, name, p))
                for name, shown in outcome.binary_rows[p].items()
            ],
            outcome.shape,
            f"Test digits with pixels flipped with probability p = {p:g}, the estimates "
            "(posterior means in grey), and the score of each method over all test digits.",
        )
        for p in outcome.binary_rows
    )
    chosen = (
        "<p>The weight decay and the number of hidden units were chosen by this very score, with "
        "seed 0. With seeds 1 and 2, not used for that, the machine is ahead of both up to "
        "<i>p</i> = 0.3, and at 0.4 behind the pointwise estimator by less than 0.01.</p>"
    )
    return f"""<p>Each pixel of the binary digits is flipped with probability <i>p</i>. The machine
estimates the clean pixel from all noisy ones, by solving the TAP equations with the observation as
an additional field. The pointwise optimal estimator knows the mean of each pixel, but no couplings;
the nearest neighbour is the training digit that differs from the noisy one in fewest pixels. The
score is the Matthews correlation of estimate and truth, averaged over {N_DRAWS} noisy versions of
each digit: 1 is perfect, 0 is chance.</p>
{"" if outcome.quick else chosen}
{_pair([curve, _table(rows, ["p", *scores, "best"])])}
{strips}"""


def _score_at(scores, name, p):
    return f"{scores[name][FLIP_PROBABILITY.index(p)]:.3f}" if name in scores else ""


def _gaussian_noise(outcome):
    errors = outcome.real_errors
    rows = [
        (name, images, f"{errors[name]:.4f}" if name in errors else "")
        for name, images in outcome.real_rows.items()
    ]
    caption = (
        "The same test digits in grey: clean, noisy, and two estimates, with the mean squared "
        "error of a pixel over all test digits."
    )
    return f"""<p>Grey levels from 0 to 1 receive Gaussian noise of variance {NOISE_VARIANCE:g},
that is of standard deviation {NOISE_VARIANCE**0.5:g}. The real-valued machine is given the noisy
values as fields of its visible units; the pointwise optimal estimator has the same units without
couplings.</p>
{_strips(rows, outcome.shape, caption)}"""


def _time(outcome):
    seconds = outcome.seconds
    rows = {name: [f"{s.total:.1f}", f"{s.compiling:.1f}"] for name, s in seconds.items()}
    rows["sum"] = [f"{sum(column):.1f}" for column in zip(*seconds.values(), strict=True)]
    return f"""<p>On {n_cores()} cores ({escape(platform.machine())}), with Python
{platform.python_version()} and Numba {version("numba")}. Compiled code is kept: with it, later
runs are faster by the second column.</p>
{_table(rows, ["step", "time (s)", "of which compiling and loading (s)"])}"""


def _next(folder):
    commands = f"""\
fastmf info {shlex.quote(str(folder / "binary.npz"))}
fastmf train rbm images.npy --output model.npz
fastmf denoise model.npz noisy.npy --flip-probability 0.1 --output clean.npy
fastmf warmup"""
    program = f"""\
import fastmf as mf

rbm = mf.GeneralizedRBM.load({str(folder / "binary.npz")!r})
digits = mf.datasets.load_digits(binary=True)
noisy = mf.evaluation.flip(digits.X[:10], 0.1, rng=0)
restored = rbm.denoise(noisy, flip_probability=0.1)
figure = mf.plotting.image_rows({{"noisy": noisy, "restored": restored}}, digits.shape)
figure.savefig("digits.png")"""
    return f"""<p>Both machines are beside this page, as <code>binary.npz</code> and
<code>real.npz</code>. In a terminal: what is in a file; a machine trained on images of your own,
one per row; noise removed by it; everything else compiled at once.</p>
<pre><code class="shell">{escape(commands)}</code></pre>
<p>In Python, from the same folder:</p>
<pre><code class="python">{escape(program)}</code></pre>"""


# --- parts ----------------------------------------------------------------------------------------


def _plotting():
    from fastmf import plotting

    return plotting


def _table(rows, header):
    return f'<div class="wide">{html.table([(k, *v) for k, v in rows.items()], header)}</div>'


def _pair(parts):
    """Two parts side by side, below each other on a narrow screen."""
    return f'<div class="pair">{"".join(parts)}</div>'


def _figure(figure, caption):
    """A figure inside the page, as SVG, with its caption."""
    buffer = StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    start = text.index("<svg")
    end = text.index(">", start) + 1
    image = text[start:end] + FIGURE_STYLE + text[end:].replace("#000000", "currentColor")
    return (
        f"<figure>{_image('svg+xml', image.encode(), caption)}"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _strips(rows, shape, caption):
    """A table of rows of images: the name of each row, its images and perhaps a number."""
    lines = []
    for name, images, *numbers in rows:
        content = _image("png", _png(images, shape), f"{len(images)} digits: {name}")
        cells = "".join(f"<td>{escape(number)}</td>" for number in numbers)
        lines.append(f'<tr><th scope="row">{escape(name)}</th><td>{content}</td>{cells}</tr>')
    body = "\n".join(lines)
    return f'<table class="strips"><caption>{escape(caption)}</caption>\n{body}\n</table>'


def _png(images, shape):
    """Images side by side, one pixel a pixel: the browser enlarges them."""
    from matplotlib.image import imsave

    buffer = BytesIO()
    whole = _plotting().mosaic(images, shape, len(images))
    imsave(buffer, whole, cmap="gray", vmin=0, vmax=1, format="png")
    return buffer.getvalue()


def _image(kind, content, description):
    data = base64.b64encode(content).decode()
    return f'<img alt="{escape(description)}" src="data:image/{kind};base64,{data}">'
