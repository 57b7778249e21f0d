"""Deep Boltzmann machines on MNIST: Fig. 11 of Tramel et al., Phys. Rev. X 8 (2018) 041006.

Trains machines layer by layer and then together, and writes likelihood.png and .csv (TAP
log-likelihood per unit by epoch of joint training; dashed: test images) and each machine as
dbm-SIZES.npz into a folder. A run that resumes repeats pre-training. Results: tap_machines.md.
"""

import time

import experiment

import fastmf as mf

# Training images that mean-field solutions and annealed chains start from.
N_STARTS = 1000


def main(argv=None):
    options = parser().parse_args(argv)
    folder = experiment.folder(options, "deep")
    train, test = experiment.train_and_test("binary", options)
    X, X_test, histories = train.X, test.X, {}
    for sizes in options.layers:
        name = "-".join(map(str, sizes))
        machine = trained(sizes, X, X_test, options, folder / f"checkpoint-{name}.npz")
        machine.save(folder / f"dbm-{name}.npz")
        histories[name] = machine.history_
    experiment.report_likelihoods(histories, folder, "layers")


def parser():
    made = experiment.Parser(
        __doc__, "seed", "threads", "data", "output",
        quick={"layers": [(30, 15), (30, 15, 10)], "rows": 2000, "epochs": 5, "pretraining": 3},
        epochs=(20, "of all layers together"), pretraining=(5, "epochs of each layer alone"),
        rows=int, learning_rate=0.05,
        hours=(float("inf"), "of joint training, after which it ends"),
        uncentred=(False, "gradients of plain coordinates, as in the paper"),
    )  # fmt: skip
    made.add_argument("--layers", type=sizes_of, nargs="+", default=[(100, 50), (100, 50, 25)],
                      metavar="N,N", help="hidden units [100,50 100,50,25]")  # fmt: skip
    return made


def sizes_of(text):
    return tuple(int(part) for part in text.split(","))


def limit(seconds):
    """A callback that ends training some seconds after the first epoch."""
    times = []

    def is_over(state):
        times.append(time.perf_counter())
        return times[-1] - times[0] > seconds

    return is_over


def trained(sizes, X, X_test, options, checkpoint):
    begin = time.perf_counter()
    machine = mf.DeepBoltzmannMachine(
        sizes,
        pretraining_epochs=options.pretraining,
        learning_rate=options.learning_rate,
        n_epochs=options.epochs,
        n_sweeps=10,
        centred=not options.uncentred,
        callbacks=[limit(3600 * options.hours), mf.evaluation.Checkpoint(checkpoint)],
        n_threads=options.threads,
        random_state=options.seed,
        verbose=experiment.VERBOSE,
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


if __name__ == "__main__":
    experiment.run(main)
