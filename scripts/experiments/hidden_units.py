#!/usr/bin/env python3
"""Kinds of hidden units on real data: binary, Gaussian (Hopfield), rectified, spike and slab.

After section VIII of Tramel et al., Phys. Rev. X 8 (2018) 041006. Prints log-likelihoods of test
images by annealed importance sampling beside independent pixels. Real-valued hidden units have no
bound: mean field of all layers has moments where their precisions exceed the part that couplings
take away (a "margin" above 1). Results: tap_machines.md.
"""

import time

import experiment
import numpy as np

import fastmf as mf

KINDS = {
    "binary": "bernoulli",
    "gaussian": "gaussian",
    "rectified": mf.TruncatedGaussian(0.0, 1.0, 0.0, np.inf),
    "spike-and-slab": "gauss_bernoulli",
}
# Truncated Gaussians are slow to sample.
RATES, STEPS = {"binary": 0.02, "faces": 0.01}, {"binary": 1000, "faces": 300}


def main(argv=None):
    options = experiment.Parser(
        __doc__, "seed", "data", "dataset", quick={"rows": 2000, "hidden": 20, "epochs": 5},
        kinds=KINDS, hidden=100, epochs=20, rows=int,
        learning_rate=(float, "[0.02 of digits, 0.01 of faces]"),
    ).parse_args(argv)  # fmt: skip
    train, test = experiment.train_and_test(options.dataset, options)
    for kind in options.kinds:
        trained(kind, train.X, test.X, options)


def trained(kind, X, X_test, options):
    begin = time.perf_counter()
    machine = experiment.machine(
        options, options.hidden, hidden=KINDS[kind], n_epochs=options.epochs,
        learning_rate=options.learning_rate or RATES[options.dataset],
        batch_size=100, l2=0.001, weight_scale=0.01,
    ).fit(X, validation_data=X_test)  # fmt: skip
    model, history = machine.model_, machine.history_
    text = (
        f"{kind:16} log-likelihood per unit {history['log_likelihood'][0]:8.4f} to "
        f"{history['log_likelihood'][-1]:8.4f}, {time.perf_counter() - begin:4.0f} s"
    )
    above, below, _ = experiment.annealed(
        model, X_test, n_steps=STEPS[options.dataset], data=X[:100], rng=options.seed
    )
    pixels = machine.pointwise_
    independent = pixels.log_prob(X_test).sum(1).mean() - pixels.log_partition(0.0, 0.0).sum()
    text += (
        f"; test images by AIS {above:8.2f}, reverse {below:8.2f}, "
        f"independent pixels {independent:8.2f}"
    )
    if hasattr(model.hidden, "precision"):
        # Of visible units, 0.25 is the largest variance.
        margin = model.hidden.precision / ((model.weights**2).sum(0) / 4)
        text += f"; margin {margin.min():.2f}"
    print(text, flush=True)


if __name__ == "__main__":
    experiment.run(main)
