"""
Which pixels tell two digits apart?
===================================

A probit classifier with a spike-and-slab prior separates scikit-learn's threes and eights. The
posterior inclusion probabilities show which pixels are relevant; only a few are.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split

import fastmf as mf

digits = mf.datasets.load_digits(dtype=float)
chosen = np.isin(digits.labels, [3, 8])
X, y = digits.X[chosen], digits.labels[chosen]
varied = X.std(0) > 0.05  # pixels that are constant in nearly all rows are left out
A, B, c, d = train_test_split(X[:, varied], y, train_size=120, random_state=0)

slab = mf.SpikeSlabClassifier(slab_variance=1.0, inclusion_probability=0.1).fit(A, c)
logistic = LogisticRegression(l1_ratio=1, solver="liblinear")
lasso = GridSearchCV(logistic, {"C": np.logspace(-2, 2, 9)}).fit(A, c)
for name, model in (("spike and slab", slab), ("l1, cross-validated", lasso)):
    print(f"{name:20} accuracy {model.score(B, d):.3f}")

# %%
# The figure shows two threes and eights, the inclusion probability of each pixel, and its
# coefficient (red for eight).
inclusion, coefficients = np.zeros(64), np.zeros(64)
inclusion[varied], coefficients[varied] = slab.inclusion_probability_, slab.coef_[0]
figure, panels = plt.subplots(1, 4, figsize=(9, 2.4), layout="constrained")
for axes, digit in zip(panels, (3, 8), strict=False):
    axes.imshow(X[y == digit].mean(0).reshape(8, 8), cmap="gray_r")
    axes.set_title(f"mean {digit}")
panels[2].imshow(inclusion.reshape(8, 8), cmap="viridis", vmin=0, vmax=1)
panels[2].set_title("inclusion probability")
limit = abs(coefficients).max()
panels[3].imshow(coefficients.reshape(8, 8), cmap="RdBu_r", vmin=-limit, vmax=limit)
panels[3].set_title("coefficient")
for axes in panels:
    axes.set(xticks=[], yticks=[])
plt.show()

# %%
# Predicted probabilities are averages over the posterior of the coefficients, which makes them
# calibrated.
probability = slab.predict_proba(B)[:, 1]
bins = np.clip((probability * 5).astype(int), 0, 4)
for k in range(5):
    rows = bins == k
    if rows.any():
        print(
            f"predicted {probability[rows].mean():.2f}, observed {(d[rows] == 8).mean():.2f} "
            f"({rows.sum()} rows)"
        )
