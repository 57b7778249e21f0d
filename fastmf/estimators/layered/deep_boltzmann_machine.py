"""Deep Boltzmann machines with any units, as a scikit-learn estimator."""

from dataclasses import replace

import numpy as np

from fastmf._common.arguments import count
from fastmf.estimators.layered._machine import LayeredMachine
from fastmf.inference.sampling.gibbs import even_layers, gibbs
from fastmf.learning.layered.data import completed_once
from fastmf.learning.layered.gradients import ORDER_OF_GRADIENT
from fastmf.learning.layered.step import train
from fastmf.models import RBM
from fastmf.models.dbm import machine_of
from fastmf.priors._protocol import is_unit_prior, n_units, sample
from fastmf.priors._rows import data_fields


class DeepBoltzmannMachine(LayeredMachine):
    """Deep Boltzmann machine with any unit priors, trained by mean-field solutions or chains.

    Parameters
    ----------
    n_components : tuple of int, or int
        Units of each hidden layer, from the lowest up. A number, or a tuple of one, makes an RBM.
    pretraining_epochs : int
        Epochs of each layer's pre-training as the RBM of the layer below, before all layers learn
        together; 0 for none, and none with `init`.
    visible : str, class or unit prior
        As for `GeneralizedRBM`.
    hidden : str, class, unit prior, or tuple of these
        Prior of all hidden layers, or of each.
    gradient : {"auto", "tap", "mean_field", "pcd"}
        Averages over the model, as for `GeneralizedRBM`; "auto" is "pcd" wherever there are
        unbounded units. Averages over the data are of mean-field solutions of the same order, with
        "pcd" of naive mean field.
    learning_rate, momentum, l2, n_epochs, batch_size, n_starts, n_sweeps, starts, \
    centred, preconditioning, early_stopping, weight_scale, callbacks, n_threads, random_state, \
    verbose
        As for `GeneralizedRBM`, but for 10 sweeps and a rate of 0.05. Batches of machines of
        several hidden layers have 100 rows by default, `l2` is 0.001, and weights above the first
        are of scale 0.001, except between an unbounded and a bounded hidden layer. A run that
        resumes from a checkpoint repeats its pre-training.
    init : RBM, DBM or None
        The first model, such as the `model_` of another machine. Layers of `n_components` above
        its own are added, coupled by small random weights.

    Attributes
    ----------
    model_ : DBM, or RBM if there is one hidden layer
    weights_ : tuple of arrays
        Couplings of neighbouring layers.
    visible_ : unit prior
    hidden_ : tuple of unit priors
    pointwise_, starts_, history_, log_partition_, log_partition_error_, gradient_, n_iter_, \
    n_features_in_
        As for `GeneralizedRBM`.

    Notes
    -----
    Tramel et al. (2018), Appendix E and Algorithm 4, in which the data of the l-th RBM are samples
    of the hidden units below it (the printed indices are shifted); momentum and decay as in
    Algorithm 2; with "pcd" Salakhutdinov & Hinton (2009).

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> X = (np.random.default_rng(0).random((200, 16)) < 0.3).astype(float)
    >>> dbm = mf.DeepBoltzmannMachine((8, 4), n_epochs=2, random_state=0).fit(X)
    >>> dbm.transform(X).shape
    (200, 4)

    An RBM first, and then a layer above it:

    >>> rbm = mf.GeneralizedRBM(8, n_epochs=2, random_state=0).fit(X)
    >>> dbm = mf.DeepBoltzmannMachine((8, 4), init=rbm.model_, n_epochs=2, random_state=0).fit(X)
    >>> dbm.model_.sizes
    (16, 8, 4)
    """

    _models = ("RBM", "DBM")

    def __init__(
        self, n_components=(500, 500), *, pretraining_epochs=5, visible="auto",
        hidden="bernoulli", gradient="auto", learning_rate=0.05, momentum=0.5, l2=None,
        n_epochs=20, batch_size=None, n_starts=None, n_sweeps=10, starts="data",
        centred=True, preconditioning=None, early_stopping=False, weight_scale=None,
        init=None, callbacks=None, n_threads=None, random_state=None, verbose=0,
    ):  # fmt: skip
        self._store(locals())

    @property
    def weights_(self):
        """Couplings of neighbouring layers, from the lowest up."""
        return self.model_.couplings

    @property
    def hidden_(self):
        """Priors of the hidden layers."""
        return self.model_.layers[1:]

    def _sizes(self):
        sizes = self.n_components
        return tuple(sizes) if isinstance(sizes, tuple | list) else (sizes,)

    def _settings(self):
        settings = super()._settings()
        gradients = ("auto", *ORDER_OF_GRADIENT, "pcd")
        if self.gradient not in gradients:
            raise ValueError(
                f"gradient of a deep machine must be one of {gradients}, got {self.gradient!r}."
            )
        if not self._sizes():
            raise ValueError("n_components must have a layer at least, such as (500, 500).")
        count("pretraining_epochs", self.pretraining_epochs, 0)
        return settings

    def _layers_above(self, hidden):
        several = isinstance(self.hidden, tuple | list) and not is_unit_prior(self.hidden)
        sizes, given = self._sizes(), tuple(map(n_units, hidden))
        kinds = list(self.hidden) if several else [self.hidden] * len(sizes)
        if len(kinds) != len(sizes):
            raise ValueError(
                f"hidden must be one prior, or one for each of {len(sizes)} layers, got "
                f"{len(kinds)}."
            )
        if sizes[: len(given)] != given:
            raise ValueError(
                f"n_components must begin with the hidden layers of init, {given}, got {sizes}."
            )
        return list(zip(kinds, sizes, strict=True))[len(given) :]

    def _pretrained(self, model, X, settings, seed, row_weights):
        """Each layer trained as the RBM of the one below (Algorithm 4, first part)."""
        if self.pretraining_epochs == 0 or not model.deep or self.init is not None:
            return model
        settings = replace(settings, n_epochs=self.pretraining_epochs, early_stopping=False)
        rng = np.random.default_rng([seed, 0, 4])
        weights, layers = list(model.weights), list(model.layers)
        data = X
        for k, couplings in enumerate(weights):
            machine = RBM(couplings, layers[k], layers[k + 1])
            options = {"n_threads": self.n_threads, "verbose": self.verbose}
            options |= {"seed": int(rng.integers(2**31)), "weights": row_weights}
            machine = train(machine, data, settings, **options).model
            weights[k] = machine.weights
            layers[k + 1] = machine.hidden
            if k == 0:
                layers[0] = machine.visible
                data = completed_once(machine, data, [seed, 0], self.n_threads)
            field = data_fields(machine.visible, data, machine.weights)
            data = sample(machine.hidden, field, np.zeros_like(field), rng).astype(model.dtype)
        return machine_of(weights, layers)

    def _chains(self, init, n_sweeps, rng):
        start = even_layers(self.model_, init, rng)
        even, _ = gibbs(self.model_.bipartite(), start, n_sweeps, rng, self.n_threads)
        return np.ascontiguousarray(even[:, : init.shape[1]])
