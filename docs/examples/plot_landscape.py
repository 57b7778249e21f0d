"""
The landscape of solutions
==========================

A trained machine has many TAP solutions. From each of a thousand training images the mean-field
equations are iterated to a fixed point; the distinct ones are counted, epoch by epoch, and mapped.
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
# Free energies of the distinct solutions by epoch (dots, larger where more starts lead to them),
# and their number. At first there is one solution; learning breaks it up.
axes = mf.plotting.free_energy_by_epoch(tracker.epoch, tracker.values["landscape"])

# %%
# A map of the solutions of the last epoch by Isomap, with some of them as images. Solutions look
# like digits, and similar ones are neighbours.
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
# Each of the solutions to which most starts lead (first image of a row), and training images in its
# basin.
rows = {}
for k in np.argsort(-found.counts)[:6]:
    basin = X[found.members == k][:12]
    blank = np.full((12 - len(basin), X.shape[1]), np.nan)
    rows[f"{k}: {found.counts[k]} of {len(X)}"] = np.vstack([found.visible[k], basin, blank])
figure = mf.plotting.image_rows(rows, digits.shape)
