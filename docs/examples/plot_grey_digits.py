"""
Grey pixels: truncated spike-and-slab units
===========================================

Many pixels of the grey digits are exactly zero, and all other pixels are between zero and one.
Visible units with a spike at zero and a Gaussian slab, truncated to the range of the data, describe
such pixels. The posterior means of the machine remove Gaussian noise.
"""

# sphinx_gallery_thumbnail_number = 1
import matplotlib.pyplot as plt
import numpy as np

import fastmf as mf

digits = mf.datasets.load_digits()
X = digits.X[np.random.default_rng(0).permutation(len(digits.X))]
train, test = X[:1400], X[1400:]

rbm = mf.GeneralizedRBM(
    100,
    visible="truncated_gauss_bernoulli",
    learning_rate=(0.2, 0.02),
    n_epochs=40,
    batch_size=50,
    random_state=0,
).fit(train)

# %%
# The figure shows the learned prior of one pixel without couplings: the weight of the spike, and
# the slab.
prior = rbm.visible_
samples = prior.sample(np.zeros((2000, 64)), np.zeros((2000, 64)), np.random.default_rng(0))
k = 20
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
bins = np.linspace(0, 1, 33)
axes.hist(train[:, k], bins, density=True, alpha=0.6, label=f"data, pixel {k}")
axes.hist(samples[:, k], bins, density=True, histtype="step", color="k", label="its prior")
axes.set(xlabel="grey level", ylabel="density")
axes.legend(frameon=False)
plt.show()

# %%
# `denoise` removes noise with a standard deviation of 0.3. An estimate from each single pixel
# removes far less.
variance = 0.09
noise = np.random.default_rng(1).normal(scale=variance**0.5, size=test.shape)
noisy = test + noise.astype(np.float32)
restored = rbm.denoise(noisy, noise_variance=variance)
field = noisy / np.float32(variance)
alone = rbm.pointwise_.moments(field, np.full_like(field, 1 / variance))[0]
figure = mf.plotting.image_rows(
    {
        "clean": test[:16],
        "noisy": noisy[:16],
        "pixel by pixel": alone[:16],
        "restored": restored[:16],
    },
    digits.shape,
)
for name, images in {"noisy": noisy, "pixel by pixel": alone, "restored": restored}.items():
    print(f"{name:15} mean squared error {((images - test) ** 2).mean():.4f}")
