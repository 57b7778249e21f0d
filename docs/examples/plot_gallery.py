"""
All plots
=========

This page shows one plot of each function of `fastmf.plotting`. The functions return matplotlib
figures, which ``figure.savefig`` saves. With ``ax``, they draw into existing axes.
"""

# sphinx_gallery_thumbnail_number = 15
import numpy as np

import fastmf as mf
from fastmf import plotting

digits = mf.datasets.load_digits(binary=True)
X = digits.X[np.random.default_rng(0).permutation(len(digits.X))]
train, test = X[:1400], X[1400:]
tracker = mf.evaluation.Tracker(
    epochs=(1, 3, 6, 10, 20, 30, 40),
    landscape=lambda model: mf.evaluation.solutions(model, train[:300]),
    pseudo=lambda model: mf.evaluation.pseudo_log_likelihood(model, test).mean() / 64,
)
rbm = mf.GeneralizedRBM(
    100, learning_rate=(0.3, 0.05), n_epochs=40, batch_size=50, callbacks=[tracker], random_state=0
).fit(train, validation_data=test)

# %%
# `learning_curve`: the log-likelihood after each epoch, dashed for validation data.
figure = plotting.learning_curve(rbm)

# %%
# `curves_by_epoch`: any other quantity by epoch, here the pseudo-likelihood of test data.
axes = plotting.curves_by_epoch(
    tracker.epoch, {"pseudo-likelihood": tracker.values["pseudo"]}, label="nats per pixel"
)

# %%
# `receptive_fields`: weights of hidden units as images, the strongest first.
figure = plotting.receptive_fields(rbm, digits.shape, n_fields=40, columns=10)

# %%
# `image_rows`: rows of images under each other, such as data and samples.
samples = rbm.sample(12, n_sweeps=300, random_state=0)
figure = plotting.image_rows({"data": train[:12], "samples": samples}, digits.shape)

# %%
# `image_rows` also shows clean, noisy and restored images.
noisy = mf.evaluation.flip(test, 0.1, rng=0)
restored = rbm.denoise(noisy, flip_probability=0.1)
figure = plotting.image_rows(
    {"clean": test[:12], "10% flipped": noisy[:12], "restored": restored[:12]}, digits.shape
)

# %%
# `curves_by_epoch` also draws scores of several estimates by noise level.
levels = (0.05, 0.1, 0.2, 0.3)
scores = {"RBM (TAP)": [], "pointwise": []}
for p in levels:
    noisy = mf.evaluation.flip(test, p, rng=0)
    estimates = (
        rbm.denoise(noisy, flip_probability=p, n_starts=5, candidates=train),
        mf.evaluation.pointwise_estimate(noisy, train.mean(0), p),
    )
    for values, estimate in zip(scores.values(), estimates, strict=True):
        values.append(mf.evaluation.matthews_correlation(test, estimate).mean())
axes = plotting.curves_by_epoch(levels, scores, label="Matthews correlation")
axes.set_xlabel("flip probability")

# %%
# `free_energy_by_epoch`: free energies and number of the solutions.
axes = plotting.free_energy_by_epoch(tracker.epoch, tracker.values["landscape"])

# %%
# `log_partitions`: log Z by all methods, with bars of two standard errors.
figure = plotting.log_partitions(
    mf.evaluation.log_partition_report(rbm.model_, train[:300], n_steps=300)
)

# %%
# `coupling_network`: couplings of a fully visible machine; uncertain couplings are pale.
rng = np.random.default_rng(0)
chain = np.cumprod(np.where(rng.random((800, 8)) < 0.7, 1, -1), axis=1)
machine = mf.FullyVisibleBoltzmannMachine().fit(chain)
figure = plotting.coupling_network(machine, names="abcdefgh")

# %%
# `edge_forest`: its strongest couplings, with confidence intervals.
figure = plotting.edge_forest(machine, n_top=12, names="abcdefgh")

# %%
# `coefficient_forest`: the largest coefficients of a sparse regression with their standard
# deviations and inclusion probabilities.
table = rng.normal(size=(60, 80))
y = table[:, :4] @ [1.5, -1.0, 0.7, 0.4] + 0.5 * rng.normal(size=60)
fit = mf.SpikeSlabRegressor().fit(table, y)
names = [f"gene {k}" for k in range(80)]
figure = plotting.coefficient_forest(fit, names=names, n_top=10)

# %%
# `contact_map`: couplings of a Potts machine above, and true contacts below. The molecule is a
# hairpin, in which facing positions pair.
half = rng.integers(0, 4, (1500, 8))
partners = np.where(rng.random(half.shape) < 0.7, 3 - half, rng.integers(0, 4, half.shape))
sequences = np.hstack([half, partners[:, ::-1]])
potts = mf.PottsMachine(l2=0.02, l2_field=0.02).fit(sequences)
positions = np.arange(16)
distances = np.where(positions[:, None] + positions == 15, 5.0, 20.0)
contacts = potts.contact_scores()
figure = plotting.contact_map(potts, distances, n_top=8, separation=1)

# %%
# `curves_by_epoch` draws the fraction of contacts among the best pairs.
n_top = np.arange(1, 17)
precision = mf.evaluation.contact_precision(contacts, distances, n_top, separation=1)
axes = plotting.curves_by_epoch(n_top, {"Potts machine": precision}, label="share of contacts")
axes.set_xlabel("predicted pairs")

# %%
# `mutation_matrix`: the change of the log-probability of a sequence by each single mutation.
figure = plotting.mutation_matrix(potts, "ACGU", sequence=sequences[0])
