"""The command `demo`: train machines on digits, and write a report."""

import shlex
from pathlib import Path

import numpy as np

import fastmf
from fastmf.cli import _options
from fastmf.cli._page import code, figure, paragraph, table, write_page
from fastmf.evaluation import flip, matthews_correlation, nearest_neighbour

FLIP_PROBABILITY = tuple(k / 10 for k in range(1, 5))

# Weight decay and size were chosen by the scores with seed 0; other seeds are an unbiased test.
BINARY = dict(n_components=40, learning_rate=(0.1, 0.01), n_epochs=120, batch_size=50, l2=0.05)
REAL = dict(
    n_components=100, learning_rate=(0.2, 0.02), n_epochs=40, batch_size=50, n_sweeps=2, l2=0.001
)
QUICK = dict(n_components=16, n_epochs=2)
ANNEALING = dict(n_chains=100, n_steps=1000)

_POOR = "Small machines that have learned little (--quick): results are poor."
_CHOSEN = (
    "The weight decay and the number of hidden units were chosen by this very score, with seed 0. "
    "With seeds 1 and 2, not used for that, the machine is ahead of both up to p = 0.3, and at 0.4 "
    "behind the pointwise estimator by less than 0.01."
)


def demo(arguments):
    """Train two machines on digits, restore noisy digits, and write a report.

    A binary and a real-valued machine are trained on the 8 x 8 digits of scikit-learn, and restore
    test digits. The report is a single page of HTML with all figures; the machines are saved in
    the same folder.

    example:
      fastmf demo --output report
          then open report/index.html in a browser

    Needs scikit-learn and matplotlib: pip install scikit-learn matplotlib

    Options
    -------
    -o, --output FOLDER = report
        folder of the report
    --quick
        use small machines and few epochs
    --seed N = 0
        seed of the random numbers
    -q, --quiet
        do not show progress
    """
    from fastmf.plotting import axes

    axes(None, (1, 1))  # raise an error before training if matplotlib is missing
    folder = Path(arguments.output)
    folder.mkdir(parents=True, exist_ok=True)
    demo = Demo(arguments.random_state, arguments.quick, arguments.quiet)
    demo.learn()
    demo.binary.save(folder / "binary.npz")
    demo.real.save(folder / "real.npz")
    write_page(folder / "index.html", "demo", demo.page(folder))
    for name, scores in demo.scores.items():
        print(f"{name:28}" + "".join(f"{score:7.3f}" for score in scores))
    levels = ", ".join(map(str, FLIP_PROBABILITY))
    print(f"{folder / 'index.html'}: Matthews correlations as above at p = {levels}")


class Demo:
    """Two machines trained on digits, tests of their restoration of digits, and the report."""

    # Number of training digits (of 1797), of digits shown, and of noisy versions of a test digit.
    n_train, n_shown, n_draws, noise_variance = 1400, 12, 5, 0.09

    def __init__(self, seed=0, quick=False, quiet=False):
        digits = fastmf.datasets.load_digits()
        self.seed, self.quick, self.quiet = seed, quick, quiet
        self.shape, self.scores = digits.shape, {}
        order = np.random.default_rng(seed).permutation(len(digits.X))
        self.train, self.test = digits.X[order[: self.n_train]], digits.X[order[self.n_train :]]
        self.ones, self.test_ones = ((X > 0.5).astype(X.dtype) for X in (self.train, self.test))

    def learn(self):
        """Train both machines."""
        _options.say("learning binary digits", self.quiet)
        self.binary = self._fit("bernoulli", BINARY, self.ones, self.test_ones)
        _options.say("learning real-valued digits", self.quiet)
        self.real = self._fit("truncated_gauss_bernoulli", REAL, self.train, self.test)
        self.machines = {"Binary machine": self.binary, "Real-valued machine": self.real}

    def _fit(self, visible, options, X, validation):
        options = options | (QUICK if self.quick else {})
        machine = fastmf.GeneralizedRBM(
            visible=visible, random_state=self.seed, verbose=int(not self.quiet), **options
        )
        return machine.fit(X, validation_data=validation)

    def page(self, folder):
        """Compute samples, likelihoods and restorations; return the values of the page."""
        rng, file = np.random.default_rng(self.seed), str(folder / "binary.npz")
        _options.say("sampling, noise and log Z", self.quiet)
        samples = self.binary.sample(self.n_shown, n_sweeps=1000, random_state=self.seed)
        report = fastmf.evaluation.log_partition_report(
            self.binary.model_, self.ones[: ANNEALING["n_steps"]], rng=self.seed, **ANNEALING
        )
        caption = f"log Z of the binary machine; dotted: {report[0].name}; two standard errors"
        height, width = self.shape
        return {
            **ANNEALING,
            "version": fastmf.__version__,
            "n_pixels": height * width,
            "height": height,
            "width": width,
            "n_draws": self.n_draws,
            "n_train": len(self.train),
            "n_test": len(self.test),
            "variance": self.noise_variance,
            "ends": report["reverse AIS"].remark.split("; ", 2)[2],
            "quick": paragraph(_POOR) if self.quick else "",
            "chosen": "" if self.quick else paragraph(_CHOSEN),
            "options": code("text", "\n".join(map(repr, self.machines.values()))),
            "learning_curves": [
                figure(fastmf.plotting.learning_curve(machine), f"{name}, nats per unit")
                for name, machine in self.machines.items()
            ],
            "receptive_fields": [self._receptive_fields(*item) for item in self.machines.items()],
            "samples": self._images(
                {"training digits": self.ones, "samples": samples},
                f"Training digits, and samples of the binary machine: {self.n_shown} Gibbs "
                "chains after 1000 sweeps each. Samples resemble digits, not always one.",
            ),
            "log_partitions": [
                figure(fastmf.plotting.log_partitions(report), caption), code("text", str(report)),
            ],
            "likelihoods": self._likelihoods(report),
            "binary_noise": self._binary_noise(rng),
            "gaussian_noise": self._gaussian_noise(rng),
            "file": shlex.quote(file),
            "file_in_python": repr(file),
        }  # fmt: skip

    def _receptive_fields(self, name, machine):
        n = min(40, machine.n_components)
        fields = fastmf.plotting.receptive_fields(machine, self.shape, n_fields=n, columns=8)
        caption = f"{name}: the {n} hidden units of largest weights, of {machine.n_components}."
        return figure(fields, caption)

    def _images(self, rows, caption):
        """Return a figure of the first images of named rows."""
        rows = {name: X[: self.n_shown] for name, X in rows.items()}
        return figure(fastmf.plotting.image_rows(rows, self.shape), caption)

    def _likelihoods(self, report):
        machine, test = self.binary, self.test_ones
        pixels, zero = machine.pointwise_, np.zeros_like(test[0])
        likelihoods = {
            "machine, log Z by AIS": machine.score_samples(test, report["AIS"].log_partition),
            "machine, log Z by TAP": machine.score_samples(test),
            "independent pixels": (pixels.log_prob(test) - pixels.log_partition(zero, zero)).sum(1),
        }
        rows = [(name, values.mean()) for name, values in likelihoods.items()]
        return table(("model", "log-likelihood of a test digit (nats)"), rows)

    def _binary_noise(self, rng):
        strips, rows, test = [], [], np.tile(self.test_ones, (self.n_draws, 1))
        options = {"n_starts": 5, "candidates": self.ones}
        for p in FLIP_PROBABILITY:
            noisy = flip(test, p, rng)
            estimates = {
                "RBM (TAP)": self.binary.denoise(noisy, flip_probability=p, **options),
                "pointwise optimal": fastmf.evaluation.pointwise_estimate(
                    noisy, self.ones.mean(0), p
                ),
                "nearest neighbour": nearest_neighbour(noisy, self.ones),
            }
            scores = {name: matthews_correlation(test, X).mean() for name, X in estimates.items()}
            for name, score in scores.items():
                self.scores.setdefault(name, []).append(score)
            texts = [f"{score:.3f}" for score in scores.values()]
            rows.append((f"{p:g}", *texts, max(scores, key=scores.get)))
            caption = (
                f"Test digits with pixels flipped with probability p = {p:g}, the estimates "
                "(posterior means in grey)."
            )
            strips.append(self._images({"clean": test, "noisy": noisy} | estimates, caption))
        label = "Matthews correlation"
        axes = fastmf.plotting.curves_by_epoch(FLIP_PROBABILITY, self.scores, label=label)
        axes.set_xlabel("flip probability")
        curve = figure(axes.figure, "Matthews correlation against the probability of a flip.")
        return [curve, table(("p", *self.scores, "best"), rows), *strips]

    def _gaussian_noise(self, rng):
        test, machine, variance = self.test, self.real, self.noise_variance
        noisy = test + rng.normal(scale=variance**0.5, size=test.shape).astype(test.dtype)
        field = noisy / test.dtype.type(variance)
        precision = np.full_like(field, 1 / variance)
        images = {
            "clean": test,
            "noisy": noisy,
            "RBM (TAP)": machine.denoise(noisy, noise_variance=variance),
            "pointwise optimal": machine.pointwise_.moments(field, precision)[0],
        }
        rows = {f"{name}, {((X - test) ** 2).mean():.4f}": X for name, X in images.items()}
        caption = (
            "The same test digits in grey: clean, noisy, and two estimates, with the mean squared "
            "error of a pixel over all test digits."
        )
        return self._images(rows, caption)
