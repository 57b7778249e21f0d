"""Restricted Boltzmann machines with any units, as a scikit-learn estimator."""

from fastmf.estimators.layered._machine import LayeredMachine
from fastmf.inference.sampling.gibbs import gibbs


class GeneralizedRBM(LayeredMachine):
    """Restricted Boltzmann machine with any unit priors, trained by mean-field solutions.

    Parameters
    ----------
    n_components : int
        Number of hidden units.
    visible, hidden : str, class or unit prior
        A name such as "bernoulli", "ising", "binomial", "categorical", "gaussian",
        "truncated_gaussian", "gauss_bernoulli" or "truncated_gauss_bernoulli". Visible units given
        by name or class are fitted to the columns first. Bernoulli units accept probabilities;
        categorical units have one label each, an integer from 0. "auto" is "bernoulli", but for
        data frames with values beyond 0 to 1: strings and pandas' categories are categorical, whole
        numbers from 0 ordinal where that has the better BIC, all other columns Gaussian.
    gradient : {"auto", "tap", "mean_field", "adaptive_tap", "bp", "cd", "pcd", "exact"}
        How averages over the model are computed; for this and the options that follow see
        `fastmf.distributed.LayeredSettings`. "auto": "exact" (quasi-Newton steps from all rows)
        where sums over states are cheap, "pcd" with unbounded units, otherwise "tap".
    learning_rate : None, float, (start, end), (start, end, "linear") or callable
        None: 0.05; up to about 0.3 by mean-field solutions from data of discrete units, as far as
        the noise of a batch along the first principal component of the data permits.
    momentum : float
    l2 : float or None
        Weight decay. None: 0.005 for discrete units and mean-field solutions from data, otherwise
        0.001, times the share of the data that is not missing.
    l1 : float
    n_epochs : int
        Learning needs some thousands of steps, `n_epochs * n_rows / batch_size`.
    batch_size : int or None
        None: 20 where the default of `l2` is 0.005, otherwise 100; more for correlated columns.
    n_starts : int or None
        Mean-field solutions or Gibbs chains per step; None: the batch size.
    n_sweeps : int
    damping : float in [0, 1) or None
        Damping of mean-field solutions; None: adaptive.
    starts : {"data", "noise", "persistent", "random"}
    centred : bool
        Learn with units counted from their means, and real columns standardised. False: steps of
        the parameters themselves, as in the paper.
    preconditioning : float or None
        Variance of units above which natural-gradient steps are shortened; None: no such steps.
    early_stopping : bool or int
        Stop when the log-likelihood of validation data, a tenth of the rows unless given to `fit`,
        has not risen for this many epochs (True: 5), and keep the best model.
    weight_scale : float or None
        Standard deviation of the first weights, on standardised columns; None: by kinds of units.
    init : RBM or None
        The first model; replaces `n_components`, `visible`, `hidden` and `weight_scale`.
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
        Of the columns of a data frame, None of numbers; `sample` and `impute` return frames then.
    history_ : dict of lists
        By epoch: "epoch", "learning_rate", "log_likelihood" (nats per unit, visible and hidden) and
        "validation_log_likelihood".
    log_partition_, log_partition_error_ : float
    gradient_ : str
    n_iter_, n_features_in_ : int

    Notes
    -----
    Tramel et al. (2018), Algorithm 2. Attributes are in the units of the data. float32 data are
    computed in float32. Sparse rows are not made dense. For options see the guide on training.

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
        """Couplings as scikit-learn has them, (n_components, n_features)."""
        return self.model_.weights.T

    @property
    def hidden_(self):
        """Prior of the hidden units."""
        return self.model_.hidden

    def _layers_above(self, hidden):
        return () if hidden else [(self.hidden, self.n_components)]

    def _chains(self, init, n_sweeps, rng):
        return gibbs(self.model_, init, n_sweeps, rng, self.n_threads)[0]
