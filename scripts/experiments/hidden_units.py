#!/usr/bin/env python3
"""Kinds of hidden units on real data: binary, Gaussian (Hopfield), rectified, spike and slab.

After the remarks of Tramel et al., Phys. Rev. X 8 (2018) 041006, on units other than binary ones.
Trains one machine of each kind on MNIST (black and white) or on the CBCL faces (grey: truncated
Gaussian pixels on [0, 1]) and writes, as PNG and CSV, into a folder:

  likelihood    TAP log-likelihood per unit by epoch; dashed: test images
  fields-KIND   receptive fields

and each machine as rbm-KIND.npz. It prints the log-likelihoods of test images by annealed
importance sampling and of independent pixels. Real-valued hidden units have no bound: mean field of
all layers has moments where their precisions exceed what the couplings take away (a "margin" above
1).
"""

import time

import experiment
import numpy as np

import fastmf as mf
from fastmf import plotting
from fastmf.evaluation import log_likelihood

KINDS = {
    "binary": "bernoulli",
    "gaussian": "gaussian",
    "rectified": mf.TruncatedGaussian(0.0, 1.0, 0.0, np.inf),
    "spike-and-slab": "gauss_bernoulli",
}
VISIBLE = {"mnist": "bernoulli", "faces": "truncated_gaussian"}
RATES = {"mnist": 0.02, "faces": 0.01}
# Of annealing: truncated Gaussians are slow to sample.
STEPS = {"mnist": 1000, "faces": 300}


def main(argv=None):
    options = parser().parse_args(argv)
    if options.quick:
        options.rows, options.hidden, options.epochs = 2000, 20, 5
    folder = experiment.folder(options, f"hidden-units-{options.dataset}")
    name = "faces" if options.dataset == "faces" else "binary"
    train, test = experiment.train_and_test(name, options)
    histories = {}
    for kind in options.kinds:
        machine = trained(kind, train.X, test.X, options)
        machine.save(folder / f"rbm-{kind}.npz")
        histories[kind] = machine.history_
        fields = plotting.receptive_fields(machine.weights_, train.shape)
        experiment.picture(fields, folder / f"fields-{kind}.png")
    experiment.report_likelihoods(histories, folder, "kind")


def parser():
    made = experiment.parser(
        __doc__, "seed", "data", "output", "quiet", quick="20 hidden units, 5 epochs, 2000 images"
    )
    add = made.add_argument
    add("--dataset", choices=VISIBLE, default="mnist", help="[mnist]")
    add("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND", help="[all four]")
    add("--hidden", type=int, default=100, metavar="N", help="hidden units [100]")
    add("--epochs", type=int, default=20, metavar="N", help="[20]")
    add("--rows", type=int, metavar="N", help="training images [all]")
    add("--learning-rate", type=float, metavar="RATE", help="[0.02 for mnist, 0.01 for faces]")
    return made


def trained(kind, X, X_test, options):
    begin = time.perf_counter()
    machine = mf.GeneralizedRBM(
        options.hidden,
        visible=VISIBLE[options.dataset],
        hidden=KINDS[kind],
        learning_rate=options.learning_rate or RATES[options.dataset],
        batch_size=100,
        l2=0.001,
        weight_scale=0.01,
        n_epochs=options.epochs,
        random_state=options.seed,
        verbose=int(not options.quiet),
    ).fit(X, validation_data=X_test)
    model, history = machine.model_, machine.history_
    text = (
        f"{kind:16} log-likelihood per unit {history['log_likelihood'][0]:8.4f} to "
        f"{history['log_likelihood'][-1]:8.4f}, {time.perf_counter() - begin:4.0f} s"
    )
    annealed = mf.evaluation.annealed_importance_sampling(
        model, n_steps=STEPS[options.dataset], data=X[:100], rng=options.seed
    )
    unnormalised = log_likelihood(model, X_test, 0.0).mean()
    pixels = machine.pointwise_
    independent = pixels.log_prob(X_test).sum(1).mean() - pixels.log_partition(0.0, 0.0).sum()
    text += (
        f"; test images by AIS {unnormalised - annealed.log_partition:8.2f}, reverse "
        f"{unnormalised - annealed.reverse:8.2f}, independent pixels {independent:8.2f}"
    )
    if hasattr(model.hidden, "precision"):
        # Of visible units, 0.25 is the largest variance.
        margin = model.hidden.precision / ((model.weights**2).sum(0) / 4)
        text += f"; margin {margin.min():.2f}"
    print(text, flush=True)
    return machine


if __name__ == "__main__":
    experiment.run(main)
