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
        "truncated_gaussian", "gauss_bernoulli" or "truncated_gauss_bernoulli"; visible units given
        by name or class are fitted to the columns of the data first, where binomial ones take n
        from the largest value. Bernoulli units accept values in [0, 1], as probabilities.
        Categorical units have one label each, an integer from 0, and the states that occur in
        their column, or are a `fastmf.Categorical`; `sample` and `impute` give labels, too.
    gradient : {"auto", "tap", "mean_field", "tap3", "adaptive_tap", "cd", "pcd", "exact"}
        How averages over the model are computed; see
        `fastmf.learning.layered.settings.LayeredSettings`, which documents the following options up
        to `patience` in detail. "auto" is "exact" for machines whose averages are cheap by
        enumeration (at most 2^12 states, such as 12 binary hidden units; of discrete units unless
        l2 is 0) or in closed form; else "tap" for machines of bounded units, such as binary ones,
        and "pcd" with unbounded ones. "exact" maximises the
        likelihood of all rows by quasi-Newton steps, two an epoch, for which `learning_rate`,
        `momentum` and `batch_size` do not matter; with `l1` or `preconditioning` by the usual
        steps.
    learning_rate : float, (start, end), (start, end, "linear") or callable
    momentum : float
    l2 : float or None
        Weight decay. None: 0.005 where machines of discrete visible units, and hidden ones between
        bounds, learn by mean-field solutions from data, without preconditioning; otherwise 0.001;
        times the share of the data that is not missing.
    l1 : float
    n_epochs : int
        Some thousands of steps, `n_epochs * n_rows / batch_size`, are needed: with few rows take
        more epochs than the default.
    batch_size : int or None
        None: 20 where `l2` is 0.005 by default, which makes better features and, after the same
        time, higher likelihoods; otherwise 100, as many rows as chains, or as precisions need; and
        more in proportion to the variance of the first principal component of discrete columns,
        so that the noise of a step does not move modes of columns that go together.
    n_starts : int or None
        Mean-field solutions or Gibbs chains per step (None: the batch size). Half of 100 rows is
        faster and, with a rate that falls, as good after the same time; of the default 20 rows all
        are better.
    n_sweeps : int
        TAP sweeps from each start, or Gibbs sweeps, per step.
    damping : float in [0, 1) or None
        Weight of the old sites in the new ones of an iteration of adaptive TAP, of that gradient
        alone; None: adaptive.
    starts : {"data", "noise", "persistent", "random"}
    noise : float
    centred : bool
        Follow the gradient in coordinates in which units are counted from their means over the
        batch (`fastmf.learning.training.centring`); False for the ordinary one of Tramel et al.
        (2018).
    preconditioning : float or None
        Steps along the gradient times an approximate inverse Fisher matrix, shorter where the
        variance of units is above this; None for ordinary ones. With 0.5 binary machines of
        hundreds of units learn at ten times the rate, at twice the time of a step; rates of 4 and
        more may let the weights grow without bound.
    monitor_rows : int
        Rows of data from which the log-partition is estimated, after each epoch and for
        `log_partition_`.
    early_stopping : bool
        Stop when the log-likelihood of validation data no longer rises, and keep the best model.
    validation_fraction : float
        Share of the data set aside for early stopping, unless `fit` is given validation data.
    patience : int
    weight_scale : float or None
        Standard deviation of the weights before learning, in the units of measurement of learning.
        None: 0.3 / sqrt(n_features + n_components) for real columns whose units are given by name,
        and, times the square root of their precision, for real hidden units without bounds next to
        bounded columns; otherwise 0.001.
    init : RBM or None
        The model that learning begins with, such as the `model_` of another machine, in place of
        small random weights. Its units count, and its sizes; not `visible`, `hidden`,
        `n_components` and `weight_scale`.
    callbacks : sequence of callable or None
        Called as `callback(state)` after each epoch, with `state.model`, `state.epoch` and
        `state.history`; training stops when one returns True.
    checkpoint : str, path or None
        File written after each epoch (and each `checkpoint_every` batches). `fit` resumes from it,
        to bitwise the same result as without interruption; remove it to start afresh.
    checkpoint_every : int or None
    n_threads : int or None
        Threads of the compiled kernels; results do not depend on it.
    random_state : int, RandomState or None
    verbose : int
        1 for a progress bar (with tqdm installed) or a line an epoch (without).

    Attributes
    ----------
    model_ : RBM
    weights_ : array of shape (n_features, n_components)
    components_ : array of shape (n_components, n_features)
        The same, transposed, as scikit-learn has it.
    visible_, hidden_ : unit prior
    pointwise_ : unit prior
        Independent units fitted to the data: the baseline of `denoise`, and where it starts.
    starts_ : array of shape (n_rows, n_features)
        Rows of data from which solutions are looked for, and chains start.
    history_ : dict of lists
        By epoch: "epoch", "learning_rate", "log_likelihood" and "validation_log_likelihood", in
        nats per unit, visible and hidden. With validation data they are by a short annealing, else
        by mean field: 1 to 2 nats a row too high. Of small machines of unbounded units exact.
    log_partition_, log_partition_error_ : float
        Log-partition of `model_` and its standard error, exact or annealed when first asked for.
    gradient_ : str
        The gradient that was chosen, or asked for.
    n_iter_ : int
        Epochs (`fit`) or steps (`partial_fit`) done.
    n_features_in_ : int

    Notes
    -----
    Tramel, Gabrie, Manoel, Caltagirone & Krzakala (2018), Algorithm 2, with the corrections noted
    in `fastmf.learning.layered.general_step`.

    Real columns are learned in units of their standard deviation (bounded ones of at least a tenth
    of their interval), so that a column learns alike in metres and in millimetres; all attributes,
    and what callbacks see, are of the data as they are. Real hidden units between bounds are
    learned in a scale in which they vary as much as binary ones. Precisions of unbounded units are
    learned in their logarithm; those of hidden units next to bounded ones alone stay as they are
    given, and steps of such units are divided by their covariance over the batch
    (`fastmf.learning.training.hidden_scales`). Machines that have no normalised distribution are
    avoided: steps are halved where two layers of unbounded units would be coupled too strongly.
    Where mean-field iterations have no moments, as for strongly coupled units on half-lines, a
    warning says so and learning goes on with "pcd". `l2` and `l1` act on the couplings in the units
    of measurement of learning.

    float32 data are computed in float32, all other in float64.
    Rows may be sparse, in SciPy's CSR form or one that is converted to it, or integers: they are
    kept as they are, and products with sparse rows, and with chains of units of which most are 0,
    cost what their entries do. Mean-field solutions are dense whatever the rows are. Real columns
    of sparse rows are scaled, but not centred, so that learning takes other steps than with dense
    ones: precisions of columns far from zero move with their means fixed, and a column whose mean
    is dozens of its deviations learns more slowly.

    Which options suit features, likelihoods, samples and imputation: see the guide's page on
    purposes.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> X = (np.random.default_rng(0).random((200, 16)) < 0.3).astype(float)
    >>> rbm = mf.GeneralizedRBM(8, n_epochs=5, random_state=0).fit(X)
    >>> rbm.transform(X).shape
    (200, 8)

    Then chains from the model that it has learned:

    >>> longer = mf.GeneralizedRBM(init=rbm.model_, gradient="pcd", n_epochs=5).fit(X)
    """

    _models = ("RBM",)

    def __init__(
        self,
        n_components=256,
        *,
        visible="bernoulli",
        hidden="bernoulli",
        gradient="auto",
        learning_rate=0.05,
        momentum=0.5,
        l2=None,
        l1=0.0,
        n_epochs=20,
        batch_size=None,
        n_starts=None,
        n_sweeps=3,
        damping=None,
        starts="data",
        noise=0.1,
        centred=True,
        preconditioning=None,
        monitor_rows=100,
        early_stopping=False,
        validation_fraction=0.1,
        patience=5,
        weight_scale=None,
        init=None,
        callbacks=None,
        checkpoint=None,
        checkpoint_every=None,
        n_threads=None,
        random_state=None,
        verbose=0,
    ):
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
