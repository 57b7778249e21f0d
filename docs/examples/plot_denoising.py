"""
Denoising beside simpler estimates
==================================

This example restores digits at increasing noise. It compares the posterior means of a trained
machine with the optimal estimate from each single pixel, and with the nearest training image. The
score is the Matthews correlation of an image and its estimate.
"""

import numpy as np

import fastmf as mf

X = mf.datasets.load_digits(binary=True).X[np.random.default_rng(0).permutation(1797)]
train, test = X[:1400], X[1400:]
rbm = mf.GeneralizedRBM(
    100, learning_rate=(0.3, 0.05), n_epochs=80, batch_size=50, random_state=0
).fit(train)

levels = [0.05, 0.1, 0.15, 0.2, 0.3, 0.4]
scores = {"RBM (TAP)": [], "pixel by pixel": [], "nearest neighbour": []}
for p in levels:
    noisy = mf.evaluation.flip(test, p, rng=1)
    estimates = (
        rbm.denoise(noisy, flip_probability=p, n_starts=5, candidates=train),
        mf.evaluation.pointwise_estimate(noisy, train.mean(0), p),
        mf.evaluation.nearest_neighbour(noisy, train),
    )
    for values, estimate in zip(scores.values(), estimates, strict=True):
        values.append(mf.evaluation.matthews_correlation(test, estimate).mean())

axes = mf.plotting.curves_by_epoch(levels, scores, label="Matthews correlation")
axes.set_xlabel("flip probability")

# %%
# With strong noise, the mean-field equations have several solutions. With `n_starts` and
# `candidates` they are solved from the training images under which the observation is most
# probable, and the solutions are averaged. A single start is faster:
for n_starts in (1, 5):
    noisy = mf.evaluation.flip(test, 0.3, rng=1)
    estimate = rbm.denoise(noisy, flip_probability=0.3, n_starts=n_starts, candidates=train)
    print(n_starts, round(mf.evaluation.matthews_correlation(test, estimate).mean(), 3))
