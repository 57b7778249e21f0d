"""
Labels that depend on each other
================================

The 32 pixels of the lower half of a digit are labels, which are predicted from the upper half. In
this multi-label classification the labels depend strongly on each other. Independent regressions
ignore this dependence; a chain of classifiers and a conditional RBM use it.
"""

# sphinx_gallery_thumbnail_number = 2

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import ClassifierChain

import fastmf as mf

digits = mf.datasets.load_digits(binary=True, dtype=float)
images = digits.X[np.random.default_rng(0).permutation(len(digits.X))]
# Pixels that are never on are not used as labels.
lower = np.flatnonzero(images[:1400].any(0) & ~images[:1400].all(0))
lower = lower[lower >= 32]
X, Y = images[:, :32], images[:, lower].astype(int)
train, test = slice(0, 1400), slice(1400, None)

regression = LogisticRegression(max_iter=2000)
methods = {
    "independent": mf.ConditionalRBM(
        1, objective="logistic", n_epochs=40, learning_rate=(0.1, 0.01), random_state=0
    ),
    "chain": ClassifierChain(regression, random_state=0),
    "CRBM": mf.ConditionalRBM(
        64, n_epochs=40, learning_rate=(0.1, 0.01), momentum=0.5, weight_scale=0.1, random_state=0
    ),
}
errors, whole, predictions = {}, {}, {}
for name, method in methods.items():
    predicted = method.fit(X[train], Y[train]).predict(X[test])
    errors[name] = (predicted != Y[test]).mean()
    whole[name] = (predicted == Y[test]).all(1).mean()
    predictions[name] = np.zeros((len(predicted), 64))
    predictions[name][:, :32], predictions[name][:, lower] = X[test], predicted
    print(f"{name:12} wrong labels {errors[name]:.1%}, all labels right {whole[name]:.1%}")

# %%
# The figure shows the given upper halves with the predicted lower halves.
figure = mf.plotting.image_rows(
    {"true": images[test][:14]} | {name: p[:14] for name, p in predictions.items()}, digits.shape
)

# %%
# The hidden units of the CRBM induce couplings between the labels. The figure shows these
# couplings, to second order, between one pixel and all other pixels of the lower half.
W = methods["CRBM"].model_.weights
induced = np.full((64, 64), np.nan)
induced[np.ix_(lower, lower)] = W @ W.T / 4
figure, panels = plt.subplots(1, 4, figsize=(8, 1.6), layout="constrained")
for axes, pixel in zip(panels, (36, 43, 50, 59), strict=True):
    values = induced[pixel].copy()
    values[pixel] = np.nan
    limit = np.nanmax(abs(values))
    axes.imshow(values.reshape(8, 8)[4:], cmap="RdBu_r", vmin=-limit, vmax=limit)
    axes.set(xticks=[], yticks=[], title=f"with row {pixel // 8}, column {pixel % 8}")
    axes.plot(pixel % 8, pixel // 8 - 4, "k.", markersize=4)
plt.show()
