"""
Digits: train, look, sample, denoise, impute
============================================

A restricted Boltzmann machine with binary units learns scikit-learn's digits (8 x 8 pixels) with
the gradient of the TAP log-likelihood. The fitted machine extracts features, draws samples,
denoises images and imputes missing pixels.
"""

# sphinx_gallery_thumbnail_number = 2
import numpy as np

import fastmf as mf

digits = mf.datasets.load_digits(binary=True)
X = digits.X[np.random.default_rng(0).permutation(len(digits.X))]
train, test = X[:1400], X[1400:]

rbm = mf.GeneralizedRBM(
    n_components=100, learning_rate=(0.3, 0.05), n_epochs=80, batch_size=50, l2=0.01, random_state=0
).fit(train, validation_data=test)
print(f"log-likelihood of test digits: {rbm.score(test):.1f} nats")

# %%
# The figure shows the log-likelihood per unit after each epoch, for training and validation data.
figure = mf.plotting.learning_curve(rbm)

# %%
# The weights of the sixty strongest hidden units, shown as images, detect strokes and their
# absence.
figure = mf.plotting.receptive_fields(rbm, digits.shape, n_fields=60, columns=12)

# %%
# The means of the hidden units given the pixels are features for other estimators.
features = rbm.transform(test)
print(features.shape, features.dtype)

# %%
# Samples come from block Gibbs sampling, which starts from independent pixels. The figure also
# shows the means of the last half step, which look smoother.
samples = rbm.sample(16, n_sweeps=500, random_state=0)
model = rbm.model_
given_pixels = model.hidden.moments(samples @ model.weights, 0.0)[0]
means = model.visible.moments(given_pixels @ model.weights.T, 0.0)[0]
figure = mf.plotting.image_rows(
    {"data": train[:16], "samples": samples, "means": means}, digits.shape
)

# %%
# A binary symmetric channel flips a tenth of the pixels. `denoise` returns posterior means from one
# mean-field solution for each image.
noisy = mf.evaluation.flip(test, 0.1, rng=0)
restored = rbm.denoise(noisy, flip_probability=0.1)
figure = mf.plotting.image_rows(
    {"clean": test[:16], "10% flipped": noisy[:16], "restored": restored[:16]}, digits.shape
)

# %%
# NaN marks missing values, here the lower half of each image.
halves = test.copy()
halves[:, 32:] = np.nan
filled = rbm.impute(halves)
figure = mf.plotting.image_rows(
    {"clean": test[:16], "given": np.nan_to_num(halves[:16], nan=0.5), "filled in": filled[:16]},
    digits.shape,
)
wrong = ((filled > 0.5) != test)[:, 32:].mean()
common = ((train.mean(0) > 0.5) != test)[:, 32:].mean()
print(f"wrong pixels: {wrong:.1%}; by the more common value of each: {common:.1%}")
