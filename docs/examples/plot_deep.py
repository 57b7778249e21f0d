"""
A deep Boltzmann machine
========================

A deep Boltzmann machine with two hidden layers is pre-trained layer by layer and then trained
jointly. The hidden layers given the data also need a mean-field solution; otherwise the model is
treated like an RBM.
"""

# sphinx_gallery_thumbnail_number = 1
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fastmf as mf

digits = mf.datasets.load_digits(binary=True)
order = np.random.default_rng(0).permutation(len(digits.X))
X, labels = digits.X[order], digits.labels[order]
train, test = X[:1400], X[1400:]

dbm = mf.DeepBoltzmannMachine(
    (100, 100),
    pretraining_epochs=40,
    n_epochs=40,
    learning_rate=(0.3, 0.03),
    batch_size=50,
    random_state=0,
).fit(train, validation_data=test)
figure = mf.plotting.learning_curve(dbm)

# %%
# The figure shows the weights of the first layer, and the weights of the second layer projected to
# the pixels by the weights of the first.
first, second = dbm.weights_
fields = mf.plotting.receptive_fields(first, digits.shape, n_fields=40, columns=10)
figure = mf.plotting.receptive_fields(first @ second, digits.shape, n_fields=40, columns=10)

# %%
# Noisy and incomplete images are restored as with an RBM.
noisy = mf.evaluation.flip(test, 0.1, rng=0)
restored = dbm.denoise(noisy, flip_probability=0.1)
figure = mf.plotting.image_rows(
    {"clean": test[:16], "10% flipped": noisy[:16], "restored": restored[:16]}, digits.shape
)

# %%
# The means of the highest layer are features for a classifier. They are compared with the pixels.
for name, A, B in (
    ("64 pixels", train, test),
    ("100 units of the second layer", dbm.transform(train), dbm.transform(test)),
):
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000))
    accuracy = classifier.fit(A, labels[:1400]).score(B, labels[1400:])
    print(f"{name:30} accuracy {accuracy:.3f}")
