"""
The landscape of solutions
==========================

A trained machine has many TAP solutions. This example iterates the mean-field equations to a fixed
point from each of a thousand training images, and shows the number of distinct solutions by epoch
and a map of them.
"""

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from sklearn.manifold import Isomap

import fastmf as mf

digits = mf.datasets.load_digits(binary=True)
X = digits.X[np.random.default_rng(0).permutation(len(digits.X))][:1000]

tracker = mf.evaluation.Tracker(
    epochs=(1, 2, 4, 8, 12, 16, 20, 30, 40, 60, 80),
    landscape=lambda model: mf.evaluation.solutions(model, X),
)
rbm = mf.GeneralizedRBM(
    200,
    learning_rate=(0.3, 0.05),
    n_epochs=80,
    batch_size=50,
    l2=1e-4,
    callbacks=[tracker],
    random_state=0,
).fit(X)

# %%
# The figure shows the free energies of the distinct solutions by epoch (larger dots for solutions
# that more starts reach) and their number. In the first epochs there is one solution; learning
# splits it.
axes = mf.plotting.free_energy_by_epoch(tracker.epoch, tracker.values["landscape"])

# %%
# Isomap gives a map of the solutions of the last epoch. Some solutions are shown as images: they
# look like digits, and similar solutions are neighbours.
found = tracker.values["landscape"][-1]
points = Isomap(n_neighbors=10).fit_transform(found.visible)
figure, axes = plt.subplots(figsize=(7, 6), layout="constrained")
dots = axes.scatter(*points.T, s=8 + 8 * np.sqrt(found.counts), c=found.free_energy)
figure.colorbar(dots, label="free energy (nats)")
for k in np.random.default_rng(0).permutation(len(points))[:24]:
    image = OffsetImage(found.visible[k].reshape(digits.shape), zoom=3, cmap="gray_r")
    axes.add_artist(AnnotationBbox(image, points[k], pad=0.1))
print(f"{len(found.free_energy)} solutions from {len(X)} starts")

# %%
# Each row shows a solution that many starts reach (first image), and training images in its basin
# of attraction.
rows = {}
for k in np.argsort(-found.counts)[:6]:
    basin = X[found.members == k][:12]
    blank = np.full((12 - len(basin), X.shape[1]), np.nan)
    rows[f"{k}: {found.counts[k]} of {len(X)}"] = np.vstack([found.visible[k], basin, blank])
figure = mf.plotting.image_rows(rows, digits.shape)
