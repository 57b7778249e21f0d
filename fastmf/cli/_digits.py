"""The experiment of `fastmf demo`: two machines are trained on digits and denoise others."""

import time
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

# Training rows; the other 397 of the 1797 digits are test data.
N_TRAIN = 1400
FLIP_PROBABILITY = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
# Probabilities of which images are shown.
SHOWN_AT = (0.1, 0.2, 0.3)
NOISE_VARIANCE = 0.09

# Weight decay and size were chosen by the scores with seed 0; other seeds are an unbiased test.
BINARY = dict(n_components=40, learning_rate=(0.1, 0.01), n_epochs=120, batch_size=50, l2=0.05)
REAL = dict(
    n_components=100, learning_rate=(0.2, 0.02), n_epochs=40, batch_size=50, n_sweeps=2, l2=0.001
)
QUICK = dict(n_components=16, n_epochs=2)
N_CHAINS = 5
# Noisy versions of each test digit.
N_DRAWS = 5
# Images in a row.
N_SHOWN = 12
# Gibbs sweeps of each sample of the binary machine.
N_GIBBS_SWEEPS = 1000
# Chains and steps of annealed importance sampling, and starts of mean-field solutions.
ANNEALING = dict(n_chains=100, n_steps=1000)
N_SOLUTION_STARTS = 1000


class Seconds(NamedTuple):
    """Wall time of a step."""

    total: float
    compiling: float  # part of it: compilation, and loading of compiled code


class Outcome(NamedTuple):
    """Results of a run, for the report."""

    shape: tuple
    n_train: int
    n_test: int
    quick: bool
    binary: Any  # the fitted machines
    real: Any
    seconds: dict  # step -> Seconds
    samples: dict  # name -> images
    log_partitions: Any  # LogPartitionReport of the binary machine
    likelihoods: dict  # method -> mean log-likelihood of a test digit, binary, in nats
    scores: dict  # method -> Matthews correlation at each of FLIP_PROBABILITY
    binary_rows: dict  # each of SHOWN_AT -> name -> images
    real_rows: dict
    real_errors: dict  # name -> mean squared error


def experiment(*, seed=0, quick=False, quiet=False):
    """Train both machines and denoise test digits."""
    from fastmf._jit.messages import announced, to_stderr
    from fastmf.datasets import load_digits

    digits, seconds = load_digits(), {}
    order = np.random.default_rng(seed).permutation(len(digits.X))
    train, test = digits.X[order[:N_TRAIN]], digits.X[order[N_TRAIN:]]
    ones, test_ones = ((X > 0.5).astype(X.dtype) for X in (train, test))

    def fit(name, X, held_out, visible, options):
        from fastmf import GeneralizedRBM

        if not quiet:
            print(f"learning {name} digits", flush=True)
        with _timed(seconds, f"learning {name} digits"):
            return GeneralizedRBM(
                visible=visible,
                random_state=seed,
                verbose=int(not quiet),
                **(options | QUICK if quick else options),
            ).fit(X, validation_data=held_out)

    binary = fit("binary", ones, test_ones, "bernoulli", BINARY)
    real = fit("real-valued", train, test, "truncated_gauss_bernoulli", REAL)

    rng, show = np.random.default_rng(seed), None if quiet else to_stderr
    with announced("sampling", show=show), _timed(seconds, "sampling"):
        samples = _samples(binary, ones, seed)
    with announced("log Z", show=show), _timed(seconds, "log Z by all methods"):
        log_partitions, likelihoods = _evaluate(binary, ones, test_ones, seed)
    with announced("denoising", show=show), _timed(seconds, "denoising"):
        scores, binary_rows = _denoise_binary(binary, ones, test_ones, rng)
        real_rows, real_errors = _denoise_real(real, test, rng)
    return Outcome(
        digits.shape,
        len(train),
        len(test),
        quick,
        binary,
        real,
        seconds,
        samples,
        log_partitions,
        likelihoods,
        scores,
        binary_rows,
        real_rows,
        real_errors,
    )


@contextmanager
def _timed(seconds, step):
    """Note how long a step takes."""
    from fastmf._jit.messages import seconds_compiling

    start, before = time.perf_counter(), seconds_compiling()
    yield
    seconds[step] = Seconds(time.perf_counter() - start, seconds_compiling() - before)


def _samples(machine, ones, seed):
    """Training digits, and samples of the binary machine."""
    samples = machine.sample(N_SHOWN, n_sweeps=N_GIBBS_SWEEPS, random_state=seed)
    return {"training digits": ones[:N_SHOWN], "samples": samples}


def _evaluate(machine, ones, test, seed):
    """Log-partition by all methods, and mean log-likelihoods of test digits."""
    from fastmf import log_partition_report

    report = log_partition_report(machine.model_, ones[:N_SOLUTION_STARTS], rng=seed, **ANNEALING)
    pixels = machine.pointwise_
    zero = np.zeros_like(test[0])
    independent = (pixels.log_prob(test) - pixels.log_partition(zero, zero)).sum(1).mean()
    return report, {
        "machine, log Z by AIS": machine.score_samples(test, report["AIS"].log_partition).mean(),
        "machine, log Z by TAP": machine.score_samples(test).mean(),
        "independent pixels": independent,
    }


def _denoise_binary(machine, ones, test, rng):
    """Scores of all methods at all noise levels, and images at one of them."""
    from fastmf.evaluation import flip, matthews_correlation, nearest_neighbour, pointwise_estimate

    scores, shown = {}, {}
    test = np.tile(test, (N_DRAWS, 1))
    for p in FLIP_PROBABILITY:
        noisy = flip(test, p, rng)
        estimates = {
            "RBM (TAP)": machine.denoise(
                noisy, flip_probability=p, n_starts=N_CHAINS, candidates=ones
            ),
            "pointwise optimal": pointwise_estimate(noisy, ones.mean(0), p),
            "nearest neighbour": nearest_neighbour(noisy, ones),
        }
        for name, estimate in estimates.items():
            scores.setdefault(name, []).append(matthews_correlation(test, estimate).mean())
        if p in SHOWN_AT:
            rows = {"clean": test, "noisy": noisy} | estimates
            shown[p] = {name: images[:N_SHOWN] for name, images in rows.items()}
    return scores, shown


def _denoise_real(machine, test, rng):
    """Rows of grey images with Gaussian noise, and the errors of two estimates."""
    noisy = test + rng.normal(scale=NOISE_VARIANCE**0.5, size=test.shape).astype(test.dtype)
    field = noisy / test.dtype.type(NOISE_VARIANCE)
    estimates = {
        "noisy": noisy,
        "RBM (TAP)": machine.denoise(noisy, noise_variance=NOISE_VARIANCE),
        "pointwise optimal": machine.pointwise_.moments(
            field, np.full_like(field, 1 / NOISE_VARIANCE)
        )[0],
    }
    errors = {name: float(((X - test) ** 2).mean()) for name, X in estimates.items()}
    rows = {"clean": test} | estimates
    return {name: images[:N_SHOWN] for name, images in rows.items()}, errors
