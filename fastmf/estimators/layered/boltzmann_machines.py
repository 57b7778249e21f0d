"""Restricted and deep Boltzmann machines with any units, as scikit-learn estimators."""

from dataclasses import replace

import numpy as np

from fastmf._common.arguments import count
from fastmf.estimators.layered._machine import LayeredMachine
from fastmf.learning.layered.data import completed_once
from fastmf.learning.layered.gradients import ORDER_OF_GRADIENT
from fastmf.learning.layered.step import train
from fastmf.models import RBM
from fastmf.models.layered import machine_of
from fastmf.priors._protocol import is_unit_prior, n_units, sample
from fastmf.priors._values import data_fields


class GeneralizedRBM(LayeredMachine):
    """Restricted Boltzmann machine with any unit priors, trained by mean-field solutions.

    Parameters
    ----------
    n_components : int
        Number of hidden units.
    visible, hidden : str, class or unit prior
        A name such as "bernoulli", "ising", "binomial", "categorical", "gaussian",
        "truncated_gaussian", "gauss_bernoulli" or "truncated_gauss_bernoulli". Visible units given
        by name or class are first fitted to the columns. Bernoulli units accept probabilities, and
        Ising units means; categorical units have one label each, from 0. "auto": "bernoulli"; for
        data frames not within [0, 1], by column: "bernoulli" for 0 and 1, "categorical" for strings
        and categories, "ordinal" for non-negative integers if BIC prefers it, else "gaussian".
    gradient : {"auto", "tap", "mean_field", "adaptive_tap", "bp", "cd", "pcd", "exact"}
        Method for the averages over the model; for this and the options that follow see
        `fastmf.distributed.LayeredSettings`. "auto": "exact" (quasi-Newton steps on all rows)
        where sums over states are cheap, "pcd" with unbounded units, otherwise "tap".
    learning_rate : None, float, (start, end), (start, end, "linear") or callable
        None: 0.05; for mean-field solutions from data of discrete units up to about 0.3, limited by
        the noise of a batch along the first principal component of the data.
    momentum : float
    l2 : float or None
        Weight decay. None: 0.005 for discrete units and mean-field solutions from data, otherwise
        0.001, times the fraction of observed values.
    l1 : float
    n_epochs : int
        Training needs thousands of steps, `n_epochs * n_rows / batch_size`.
    batch_size : int or None
        None: 20 where the default of `l2` is 0.005, otherwise 100; larger for correlated columns.
    n_starts : int or None
        Mean-field solutions or Gibbs chains per step; None: the batch size.
    n_sweeps : int
    damping : float in [0, 1) or None
        Damping of mean-field solutions; None: adaptive.
    starts : {"data", "noise", "persistent", "random"}
    centred : bool
        Use centred gradients and standardised real columns. False: plain gradients, as in the
        paper.
    preconditioning : float or None
        Variance of units above which natural-gradient steps are shortened; None: plain gradients.
    early_stopping : bool or int
        Stop when the log-likelihood of validation data, a tenth of the rows unless given to `fit`,
        has not risen for this many epochs (True: 5), and keep the best model.
    weight_scale : float or None
        Standard deviation of the initial weights on standardised columns; None: set by unit types.
    init : RBM or None
        Initial model; replaces `n_components`, `visible`, `hidden` and `weight_scale`.
    callbacks : sequence of callable or None
        Called as `callback(state)` after each epoch; training stops when one returns True. With
        `fastmf.evaluation.Checkpoint` an interrupted `fit` resumes.
    n_threads : int or None
    random_state : int, RandomState or None
    verbose : int
        1: a line on stderr after each epoch.

    Attributes
    ----------
    model_ : RBM
    weights_, components_ : array of shape (n_features, n_components), and transposed
    visible_, hidden_, pointwise_ : unit prior
        Units of the model, and independent units fitted to the data.
    starts_ : array of shape (n_rows, n_features)
        Up to 100 rows of data from which solutions and chains start.
    categories_ : list or None
        Categories of a frame's columns (None: numeric); `sample` and `impute` then return frames.
    history_ : dict of lists
        Values of each epoch: "epoch", "learning_rate", "log_likelihood" (nats per unit, visible and
        hidden) and "validation_log_likelihood".
    log_partition_, log_partition_error_ : float
    gradient_ : str
    n_iter_, n_features_in_ : int

    Notes
    -----
    Tramel et al. (2018), Algorithm 2. Attributes are on the original scale of the data. float32
    data are processed in float32. Sparse rows stay sparse. The guide on training explains options.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> X = (np.random.default_rng(0).random((200, 16)) < 0.3).astype(float)
    >>> rbm = mf.GeneralizedRBM(8, n_epochs=5, random_state=0).fit(X)
    >>> longer = mf.GeneralizedRBM(init=rbm.model_, gradient="pcd", n_epochs=5).fit(X)
    """

    _models = ("RBM",)

    def __init__(
        self, n_components=256, *, visible="auto", hidden="bernoulli", gradient="auto",
        learning_rate=None, momentum=0.5, l2=None, l1=0.0, n_epochs=20, batch_size=None,
        n_starts=None, n_sweeps=3, damping=None, starts="data", centred=True,
        preconditioning=None, early_stopping=False, weight_scale=None, init=None,
        callbacks=None, n_threads=None, random_state=None, verbose=0,
    ):  # fmt: skip
        self._store(locals())

    @property
    def weights_(self):
        """Couplings, (n_features, n_components)."""
        return self.model_.weights

    @property
    def components_(self):
        """Couplings in scikit-learn's orientation, (n_components, n_features)."""
        return self.model_.weights.T

    @property
    def hidden_(self):
        """Prior of the hidden units."""
        return self.model_.hidden

    def _layers_above(self, hidden):
        return () if hidden else [(self.hidden, self.n_components)]


class DeepBoltzmannMachine(LayeredMachine):
    """Deep Boltzmann machine with any unit priors, trained by mean-field solutions or chains.

    Parameters
    ----------
    n_components : tuple of int, or int
        Units of each hidden layer, from the lowest up. An int, or a tuple of one, makes an RBM.
    pretraining_epochs : int
        Epochs for which each pair of adjacent layers is trained as an RBM before joint training;
        0: no pre-training. Ignored if `init` is given.
    visible : str, class or unit prior
        As for `GeneralizedRBM`.
    hidden : str, class, unit prior, or tuple of these
        Prior of all hidden layers, or of each.
    gradient : {"auto", "tap", "mean_field", "pcd"}
        Method for the averages over the model, as for `GeneralizedRBM`; "auto" is "pcd" if there
        are unbounded units. Averages over the data use mean-field solutions of the same order, and
        naive mean field with "pcd".
    learning_rate, momentum, l2, n_epochs, batch_size, n_starts, n_sweeps, starts, \
    centred, preconditioning, early_stopping, weight_scale, callbacks, n_threads, random_state, \
    verbose
        As for `GeneralizedRBM`, except for 10 sweeps and a rate of 0.05. With several hidden
        layers the defaults are batches of 100 rows, `l2` 0.001, and initial weights of scale 0.001
        between hidden layers, unless one of them is bounded and the other is not. A run that
        resumes from a checkpoint repeats its pre-training.
    init : RBM, DBM or None
        Initial model, for example the `model_` of another machine. If `n_components` has more
        hidden layers, these are added on top, with small random weights.

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
    Tramel et al. (2018), Appendix E and Algorithm 4, with momentum and decay as in Algorithm 2; the
    data of the l-th RBM are samples of the hidden units below it (the printed indices are shifted).
    With "pcd", the algorithm is the one of Salakhutdinov & Hinton (2009).

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> X = (np.random.default_rng(0).random((200, 16)) < 0.3).astype(float)
    >>> dbm = mf.DeepBoltzmannMachine((8, 4), n_epochs=2, random_state=0).fit(X)
    >>> dbm.transform(X).shape
    (200, 4)

    Train an RBM first, then add a layer above it:

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
        """Train each pair of adjacent layers as an RBM (Algorithm 4, first part)."""
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
            field = data_fields(machine.visible, data, machine.weights, self.n_threads)
            data = sample(machine.hidden, field, np.zeros_like(field), rng).astype(model.dtype)
        return machine_of(weights, layers)
