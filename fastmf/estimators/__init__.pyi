from collections.abc import Callable, Sequence
from typing import Any, Self

from numpy.typing import ArrayLike

from fastmf._common.signatures import Array, Path, RandomState, UnitPrior
from fastmf.evaluation import Solutions
from fastmf.models import CRBM, DBM, RBM, BoltzmannMachine

_Rate = float | tuple[float, float] | tuple[float, float, str] | Callable[[int], float]
_Units = str | type | UnitPrior

# What scikit-learn, which has no types, gives to its estimators.
class _Estimator:
    n_features_in_: int
    def get_params(self, deep: bool = True) -> dict[str, Any]: ...
    def set_params(self, **params: Any) -> Self: ...

class _Saved:
    def save(self, path: Path) -> None: ...
    @classmethod
    def load(cls, path: Path, *, max_bytes: int | None = ...) -> Self: ...

class _LayeredMachine(_Saved, _Estimator):
    history_: dict[str, list[float]]
    pointwise_: Any
    starts_: Array
    log_partition_: float
    log_partition_error_: float
    gradient_: str
    n_iter_: int
    @property
    def visible_(self) -> Any: ...
    def fit(
        self,
        X: Any,
        y: Any = None,
        validation_data: Any = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self: ...
    def partial_fit(self, X: Any, y: Any = None) -> Self: ...
    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Array: ...
    def transform(self, X: Any) -> Array: ...
    def get_feature_names_out(self, input_features: Any = None) -> Any: ...
    def set_output(self, *, transform: str | None = None) -> Self: ...
    def score_samples(self, X: Any, log_partition: str | float = "auto") -> Array: ...
    def log_partition(self, how: str = "auto") -> float: ...
    def score(self, X: Any, y: Any = None) -> float: ...
    def solutions(self, X: Any = None, merge_tol: float = 0.01) -> Solutions: ...
    def sample(
        self,
        n_samples: int = 1,
        *,
        n_sweeps: int = 100,
        start: str = "annealed",
        init: ArrayLike | None = None,
        random_state: RandomState = None,
    ) -> Array: ...
    def denoise(
        self,
        Y: ArrayLike,
        *,
        flip_probability: float | None = None,
        noise_variance: float | None = None,
        n_starts: int = 1,
        candidates: ArrayLike | None = None,
        random_state: RandomState = None,
    ) -> Array: ...
    def impute(
        self, X: ArrayLike, *, method: str = "auto", n_starts: int = 8, labels: str = "mode"
    ) -> Any: ...

class GeneralizedRBM(_LayeredMachine):
    model_: RBM
    def __init__(
        self,
        n_components: int = 256,
        *,
        visible: _Units = "auto",
        hidden: _Units = "bernoulli",
        gradient: str = "auto",
        learning_rate: _Rate | None = None,
        momentum: float = 0.5,
        l2: float | None = None,
        l1: float = 0.0,
        n_epochs: int = 20,
        batch_size: int | None = None,
        n_starts: int | None = None,
        n_sweeps: int = 3,
        damping: float | None = None,
        starts: str = "data",
        centred: bool = True,
        preconditioning: float | None = None,
        early_stopping: bool | int = False,
        weight_scale: float | None = None,
        init: RBM | None = None,
        callbacks: Sequence[Callable[[Any], Any]] | None = None,
        n_threads: int | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None: ...
    @property
    def weights_(self) -> Array: ...
    @property
    def components_(self) -> Array: ...
    @property
    def hidden_(self) -> Any: ...

class DeepBoltzmannMachine(_LayeredMachine):
    model_: DBM
    def __init__(
        self,
        n_components: int | Sequence[int] = (500, 500),
        *,
        pretraining_epochs: int = 5,
        visible: _Units = "auto",
        hidden: _Units | Sequence[_Units] = "bernoulli",
        gradient: str = "auto",
        learning_rate: _Rate = 0.05,
        momentum: float = 0.5,
        l2: float | None = None,
        n_epochs: int = 20,
        batch_size: int | None = None,
        n_starts: int | None = None,
        n_sweeps: int = 10,
        starts: str = "data",
        centred: bool = True,
        preconditioning: float | None = None,
        early_stopping: bool | int = False,
        weight_scale: float | None = None,
        init: DBM | RBM | None = None,
        callbacks: Sequence[Callable[[Any], Any]] | None = None,
        n_threads: int | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None: ...
    @property
    def weights_(self) -> tuple[Array, ...]: ...
    @property
    def hidden_(self) -> tuple[Any, ...]: ...

class ConditionalRBM(_Saved, _Estimator):
    model_: CRBM
    values_: Array
    history_: dict[str, list[float]]
    n_iter_: int
    n_sweeps_: int
    def __init__(
        self,
        n_components: int = 256,
        *,
        objective: str = "likelihood",
        inference: str | None = None,
        n_gibbs: int = 1,
        gibbs_start: str = "data",
        n_sweeps: int | None = None,
        learning_rate: _Rate = 0.05,
        momentum: float = 0.0,
        l2: float = 0.0,
        n_epochs: int = 50,
        batch_size: int = 20,
        early_stopping: bool | int = False,
        weight_scale: float = 0.01,
        standardize: bool = True,
        init: CRBM | None = None,
        callbacks: Sequence[Callable[[Any], Any]] | None = None,
        n_threads: int | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None: ...
    @property
    def classes_(self) -> Any: ...
    def fit(
        self, X: Any, y: Any, validation_data: Any = None, sample_weight: ArrayLike | None = None
    ) -> Self: ...
    def predict(self, X: Any, decode: str | None = None) -> Array: ...
    def predict_proba(self, X: Any) -> Array: ...
    def score_samples(self, X: Any, y: Any = None) -> Array: ...
    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float: ...

class _ItemMachine(_Saved, _Estimator):
    categories_: list[Array]
    history_: Array
    n_iter_: int
    converged_: bool
    existence_: Any
    n_missing_: int
    n_dropped_: int
    def score(self, X: Any, y: Any = None) -> float: ...
    def sample(
        self,
        n_samples: int = 1,
        *,
        n_sweeps: int = 100,
        temperature: float = 1.0,
        random_state: RandomState = None,
    ) -> Array: ...
    def impute(self, X: Any, *, method: str = "auto", random_state: RandomState = 0) -> Any: ...

class _CompositeMachine(_ItemMachine):
    path_: Any
    def covariance(self) -> Array: ...
    def standard_errors(self, pairs: ArrayLike | None = None) -> Any: ...
    def confint(self, level: float = 0.95) -> tuple[Array, Any]: ...
    def test_couplings(self, adjust: str = "holm", *, as_frame: bool = False) -> Any: ...
    def likelihood_ratio_test(self, pairs: ArrayLike | None = None) -> Any: ...
    def edge_inclusion(
        self,
        inclusion_probability: float | None = 0.5,
        scale: float | None = 1.0,
        slab: str = "gaussian",
        errors: str = "sandwich",
    ) -> Any: ...
    def strength(self, *, as_frame: bool = False) -> Any: ...
    def expected_influence(self, *, as_frame: bool = False) -> Any: ...
    def predictability(self, *, as_frame: bool = False) -> Any: ...
    def bootstrap(self, n: int = 1000, rng: RandomState = 0, verbose: bool = False) -> Any: ...
    def stability(
        self,
        n: int = 100,
        dropped: Sequence[float] = (0.1, 0.25, 0.5, 0.75),
        rng: RandomState = 0,
        verbose: bool = False,
    ) -> Any: ...

class FullyVisibleBoltzmannMachine(_CompositeMachine):
    couplings_: Array
    field_: Array
    model_: BoltzmannMachine
    gradient_norm_: float
    @property
    def n_available_(self) -> Array: ...
    def __init__(
        self,
        *,
        solver: str = "auto",
        l1: float | str = 0.0,
        l2: float = 0.0,
        tol: float = 1e-05,
        max_iter: int | None = None,
        graph: Any = None,
        ebic_gamma: float = 0.25,
        missing: str = "error",
        n_threads: int | None = None,
    ) -> None: ...
    def fit(
        self,
        X: ArrayLike,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        clusters: ArrayLike | None = None,
    ) -> Self: ...
    def score_samples(self, X: ArrayLike) -> Array: ...
    def conditional_proba(self, X: ArrayLike) -> Array: ...
    def pmf(self, X: ArrayLike | None = None) -> Array: ...
    def in_coding(self, coding: str) -> tuple[Array, Array]: ...

class OrdinalMachine(_CompositeMachine):
    couplings_: Array
    thresholds_: list[Array]
    @property
    def n_categories_(self) -> Array: ...
    log_pseudo_likelihood_: float
    def __init__(
        self,
        *,
        n_categories: int | Sequence[int] | None = None,
        thresholds: str = "free",
        l1: float | str = 0.0,
        l2: float = 0.0,
        l2_field: float = 0.0,
        missing: str = "error",
        ebic_gamma: float = 0.25,
        solver: str = "auto",
        tol: float = 1e-05,
        max_iter: int | None = None,
        n_threads: int | None = None,
    ) -> None: ...
    @property
    def model_(self) -> BoltzmannMachine: ...
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        clusters: ArrayLike | None = None,
    ) -> Self: ...
    def score_samples(self, X: Any) -> Array: ...
    def conditional_proba(self, X: Any) -> Array: ...

class PottsMachine(_ItemMachine):
    log_pseudo_likelihood_: float
    @property
    def sizes_(self) -> Array: ...
    @property
    def n_available_(self) -> Array: ...
    def __init__(
        self,
        *,
        n_states: int | Sequence[int] | None = None,
        l2: float = 0.0,
        l2_field: float = 0.0,
        solver: str = "auto",
        tol: float = 0.0001,
        max_iter: int | None = None,
        graph: Any = None,
        missing: str = "absent",
        n_threads: int | None = None,
        verbose: bool = False,
    ) -> None: ...
    @property
    def couplings_(self) -> Array: ...
    @property
    def field_(self) -> Array: ...
    @property
    def model_(self) -> BoltzmannMachine: ...
    def fit(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> Self: ...
    def in_gauge(self, gauge: str, reference: int = 0) -> tuple[Array, Array]: ...
    def contact_scores(
        self, gauge: str | None = "zero-sum", ignore: int | None = None, apc: bool = True
    ) -> Array: ...
    def score_samples(self, X: ArrayLike) -> Array: ...
    def conditional_proba(self, X: ArrayLike) -> Array: ...
    def energy(self, X: ArrayLike) -> Any: ...
    def mutants(self, X: ArrayLike) -> Array: ...
    def standard_errors(self, gauge: str = "zero-sum") -> tuple[Array, Array]: ...
    def edge_inclusion(
        self,
        inclusion_probability: float | None = 0.5,
        scale: float | None = 1.0,
        slab: str = "gaussian",
        errors: str = "sandwich",
    ) -> Any: ...
    def likelihood_ratio_test(self, pairs: ArrayLike | None = None) -> Any: ...

class _SpikeSlab(_Saved, _Estimator):
    coef_: Array
    coef_var_: Array
    intercept_: Any
    inclusion_probability_: Array
    log_evidence_: Any
    slab_variance_: Any
    prior_inclusion_: Array
    sites_: Array
    blocks_: Array
    n_iter_: Any
    @property
    def reliable_(self) -> Any: ...
    @property
    def message_(self) -> Any: ...
    def as_frame(self) -> Any: ...
    def coefficient_interval(self, coverage: float = 0.95) -> tuple[Array, Array]: ...
    def credible_sets(self, coverage: float = 0.95) -> Any: ...
    def colocalisation(
        self, model: Any, *, shared: float = 0.1, min_probability: float = 0.05
    ) -> list[Any]: ...
    def group_inclusion_probability(self, features: ArrayLike) -> Any: ...
    def sample_coefficients(self, n: int, rng: Any, n_sweeps: int | None = None) -> Array: ...
    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self: ...
    def score(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float: ...

class SpikeSlabRegressor(_SpikeSlab):
    noise_variance_: Any
    mismatch_: float
    def __init__(
        self,
        *,
        noise_variance: float | None = None,
        slab_variance: float | None = None,
        inclusion_probability: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        fit_intercept: bool = True,
        standardize: bool = True,
        blocks: ArrayLike | str | None = "auto",
        unpenalised: Sequence[int] | Sequence[str] | Array | None = None,
        solver: str = "auto",
        parameter_prior: str | None = "weak",
        average_parameters: bool = False,
        n_threads: int | None = None,
        verbose: bool = False,
    ) -> None: ...
    def fit_moments(self, gram: Any, moment: ArrayLike, y_square: float, n: float) -> Self: ...
    def fit_summary(self, z: ArrayLike, R: Any, n: float) -> Self: ...
    def predict(self, X: Any, return_std: bool = False) -> Any: ...

class SpikeSlabClassifier(_SpikeSlab):
    classes_: Array
    def __init__(
        self,
        *,
        likelihood: str = "probit",
        slab_variance: float | None = None,
        inclusion_probability: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        fit_intercept: bool = True,
        standardize: bool = True,
        blocks: ArrayLike | str | None = "auto",
        unpenalised: Sequence[int] | Sequence[str] | Array | None = None,
        solver: str = "auto",
        parameter_prior: str | None = "weak",
        class_weight: str | dict[Any, float] | None = None,
        n_threads: int | None = None,
        verbose: bool = False,
    ) -> None: ...
    def decision_function(self, X: Any) -> Array: ...
    def predict_proba(self, X: Any) -> Array: ...
    def predict(self, X: Any) -> Array: ...
