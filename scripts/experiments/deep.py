#!/usr/bin/env python3
"""Deep Boltzmann machines on MNIST: Fig. 11 of Tramel et al., Phys. Rev. X 8 (2018) 041006.

Trains machines of two and three hidden layers, layer by layer and then together, and writes, as PNG
and CSV, into a folder:

  likelihood     TAP log-likelihood per unit by epoch of joint training; dashed: test images
  fields-SIZES   receptive fields of the first hidden layer
  samples-SIZES  test images, and below each its sample after 50 Gibbs sweeps of the machine

and each machine as dbm-SIZES.npz. It prints its log-partition by mean field and by annealing. A run
that was stopped resumes after the last epoch of joint training if it is started again with the same
options and the same folder; its pre-training is repeated.
"""

import time

import experiment

import fastmf as mf
from fastmf import plotting

# Test images that samples start from, and sweeps.
N_SAMPLES, SWEEPS = 20, 50
# Training images that mean-field solutions and annealed chains start from.
N_STARTS = 1000


def main(argv=None):
    options = parser().parse_args(argv)
    if options.quick:
        options.layers = [(30, 15), (30, 15, 10)]
        options.rows, options.epochs, options.pretraining = 2000, 5, 3
    folder = experiment.folder(options, "deep")
    train, test = experiment.train_and_test("binary", options)
    X, X_test, histories = train.X, test.X, {}
    for sizes in options.layers:
        name = "-".join(map(str, sizes))
        machine = trained(sizes, X, X_test, options, folder / f"checkpoint-{name}.npz")
        machine.save(folder / f"dbm-{name}.npz")
        histories[name] = machine.history_
        fields = plotting.receptive_fields(machine.weights_[0], train.shape)
        experiment.picture(fields, folder / f"fields-{name}.png")
        samples(machine, X_test[:N_SAMPLES], train.shape, folder, name, options.seed)
    experiment.report_likelihoods(histories, folder, "layers")


def parser():
    made = experiment.parser(
        __doc__, "seed", "threads", "data", "output", "quiet",
        quick="small machines, 2000 images, 5 epochs",
    )  # fmt: skip
    add = made.add_argument
    add(
        "--layers",
        type=sizes_of,
        nargs="+",
        default=[(100, 50), (100, 50, 25)],
        metavar="N,N",
        help="hidden units of each layer, machine by machine [100,50 100,50,25]",
    )
    add("--epochs", type=int, default=20, metavar="N", help="of all layers together [20]")
    add("--sweeps", type=int, default=10, metavar="N", help="of TAP per step [10]")
    add("--pretraining", type=int, default=5, metavar="N", help="epochs of each layer alone [5]")
    add("--rows", type=int, metavar="N", help="training images [all 60,000]")
    add("--learning-rate", type=float, default=0.05, metavar="RATE", help="[0.05]")
    add("--hours", type=float, default=float("inf"), metavar="HOURS",
        help="of joint training, after which it ends [no limit]")  # fmt: skip
    add("--uncentred", action="store_true", help="gradients of plain coordinates, as in the paper")
    return made


def sizes_of(text):
    return tuple(int(part) for part in text.split(","))


class Limit:
    """A callback that ends training some seconds after the first epoch."""

    def __init__(self, seconds):
        self.seconds, self.first = seconds, None

    def __call__(self, state):
        """Whether to end."""
        now = time.perf_counter()
        self.first = self.first or now
        return now - self.first > self.seconds


def trained(sizes, X, X_test, options, checkpoint):
    begin = time.perf_counter()
    machine = mf.DeepBoltzmannMachine(
        sizes,
        pretraining_epochs=options.pretraining,
        learning_rate=options.learning_rate,
        n_epochs=options.epochs,
        n_sweeps=options.sweeps,
        centred=not options.uncentred,
        callbacks=[Limit(3600 * options.hours), mf.evaluation.Checkpoint(checkpoint)],
        n_threads=options.threads,
        random_state=options.seed,
        verbose=int(not options.quiet),
    ).fit(X, validation_data=X_test)
    history = machine.history_
    print(
        f"layers {sizes}: log-likelihood per unit {history['log_likelihood'][0]:.4f} after the "
        f"first epoch, {history['log_likelihood'][-1]:.4f} after the last "
        f"of {len(history['epoch'])} (test {history['validation_log_likelihood'][-1]:.4f}), "
        f"{time.perf_counter() - begin:.0f} s",
        flush=True,
    )
    print(mf.evaluation.log_partition_report(machine.model_, X[:N_STARTS]), flush=True)
    return machine


def samples(machine, starts, shape, folder, name, seed):
    """Images, and where Gibbs sampling leads from them."""
    after = machine.sample(len(starts), n_sweeps=SWEEPS, init=starts, random_state=seed)
    rows = {"test images": starts, f"{SWEEPS} sweeps later": after}
    experiment.picture(plotting.image_rows(rows, shape), folder / f"samples-{name}.png")


if __name__ == "__main__":
    experiment.run(main)
