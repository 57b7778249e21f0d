"""
Restoring images by a conditional RBM
=====================================

This is a task of structured prediction: the features are noisy, occluded digits, and the labels are
the clean pixels. A conditional RBM is trained by maximum likelihood, with the marginals of
sum-product belief propagation, and compared with a logistic regression for each pixel.
"""

import numpy as np

import fastmf as mf

digits = mf.datasets.load_digits(binary=True)
clean = digits.X[np.random.default_rng(0).permutation(len(digits.X))]
rng = np.random.default_rng(1)
seen = mf.evaluation.flip(clean, 0.05, rng)
# A block of four by four pixels is hidden, at a random place.
row, column = rng.integers(0, 5, (2, len(seen), 1, 1))
y, x = np.mgrid[:8, :8]
hidden = (row <= y) & (y < row + 4) & (column <= x) & (x < column + 4)
seen = np.where(hidden.reshape(len(seen), 64), 0, seen)
train, test = slice(0, 1400), slice(1400, None)

options = dict(n_epochs=30, batch_size=20, random_state=0)
logistic = mf.ConditionalRBM(1, objective="logistic", learning_rate=(0.1, 0.01), **options)
logistic.fit(seen[train], clean[train])
crbm = mf.ConditionalRBM(
    64, init=logistic.model_, learning_rate=(0.1, 0.01), momentum=0.5, weight_scale=0.1, **options
)
crbm.fit(seen[train], clean[train])

# %%
# The figure shows the marginals of the pixels given the features. The titles give the share of
# pixels whose more probable value is wrong, among all pixels and among the hidden pixels.
means = crbm.predict_proba(seen[test])
alone = logistic.predict_proba(seen[test])
figure = mf.plotting.image_rows(
    {
        "clean": clean[test][:16],
        "seen": seen[test][:16],
        "pixel by pixel": alone[:16],
        "CRBM": means[:16],
    },
    digits.shape,
)
inside = hidden.reshape(-1, 64)[test]
for name, values in (("pixel by pixel", alone), ("CRBM", means)):
    wrong = (values > 0.5) != clean[test]
    print(f"{name:15} wrong: {wrong.mean():.2%} of all pixels, {wrong[inside].mean():.2%} inside")

# %%
# Mixed-product and local search find the most probable image as a whole, instead of the more
# probable value of each pixel.
whole = crbm.predict(seen[test], decode="marginal_map")
marginal = crbm.predict(seen[test])
for name, images in (("marginals", marginal), ("whole", whole)):
    print(f"{name:10} images without an error: {(images == clean[test]).all(1).mean():.1%}")

# %%
# For inference, call `fastmf.belief_propagation` on the RBM given the features.
result = mf.belief_propagation(crbm.model_.given(seen[test][0]))
print(result)
