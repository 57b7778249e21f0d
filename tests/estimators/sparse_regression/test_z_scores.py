import numpy as np
import pytest
from scipy.stats import norm

from fastmf.estimators.sparse_regression._rows import summary_of, too_small


def data(n=300, p=40, effect=0.5):
    """z-scores and correlations of neighbours that are alike."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    for j in range(1, p):
        X[:, j] = 0.9 * X[:, j - 1] + 0.44 * X[:, j]
    y = effect * X[:, 10] + rng.normal(size=n)
    X, y = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
    r = X.T @ y / n
    return X, y, r * np.sqrt((n - 2) / (1 - r * r)), X.T @ X / n


def test_what_is_no_z_score_is_said():
    X, y, z, R = data(n=500, p=60)
    p_values = 2 * norm.sf(abs(z))
    assert p_values.min() < 1e-10
    assert "z seem to be p-values" in summary_of(p_values, R, 500).message()
    assert "z seem to be coefficients" in summary_of(X.T @ y / 500, R, 500).message()
    # Signs of p-values are no cure, and neither are blocks.
    half = [R[:30, :30], R[30:, 30:]]
    assert "z seem to be p-values" in summary_of(p_values, half, 500).message()


def test_scores_of_noise_are_z_scores():
    """Few false alarms among 12,000 tables without an effect, whatever their correlations are."""
    rng, n_alarms = np.random.default_rng(0), 0
    for p in (1, 2, 5, 40):
        for correlation in (0.0, 0.9, 0.999):
            R = correlation ** abs(np.subtract.outer(np.arange(p), np.arange(p)))
            for z in rng.normal(size=(1000, p)) @ np.linalg.cholesky(R).T:
                n_alarms += len([*too_small(z, [(np.arange(p), R)])])
    assert n_alarms <= 36


@pytest.mark.parametrize("p", [1, 2, 6])
def test_p_values_of_few_features_are_said(p):
    """Not what they are where nothing is small, as z-scores between 0 and 1 are no effects."""
    z = np.full(p, 0.8)
    assert not [*too_small(z, [(np.arange(p), np.eye(p))])]
    z[0] = 5.0
    (text,) = too_small(2 * norm.sf(z), [(np.arange(p), np.eye(p))])
    assert "z seem to be p-values" in text
    assert not [*too_small(z, [(np.arange(p), np.eye(p))])]


def test_rounded_correlations_are_said():
    rng = np.random.default_rng(2)
    common = np.repeat(rng.normal(size=(500, 5)), 4, axis=1)
    X = 0.8 * common + 0.6 * rng.normal(size=(500, 20))
    X = (X - X.mean(0)) / X.std(0)
    y = X[:, 3] + rng.normal(size=500)
    r = X.T @ (y - y.mean()) / y.std() / 500
    z, R = r * np.sqrt(498 / (1 - r * r)), X.T @ X / 500
    assert summary_of(z, np.round(R, 3), 500).message() is None
    found = summary_of(z, np.round(R, 1), 500)
    assert np.linalg.eigvalsh(np.round(R, 1)).min() > 0
    assert "rounded to one decimal" in found.message()
    # Correlations of a design have one decimal, too.
    made = [np.eye(20), np.full((20, 20), 0.5) + 0.5 * np.eye(20)]
    made.append(np.kron(np.eye(4), np.where(np.eye(5) > 0, 1.0, 0.9)))
    for design in made:
        own = np.linalg.cholesky(design) @ rng.normal(size=20)
        assert summary_of(own, design, 500).message() is None


def test_names_of_a_feature_without_correlations():
    *_, z, R = data()
    R[3] = R[:, 3] = np.nan
    with pytest.raises(ValueError, match="NaN or infinity at feature rs3, as for"):
        summary_of(z, R, 300, [f"rs{k}" for k in range(40)])


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"z": np.where(np.arange(40) == 7, np.inf, 1.0)},
            "z must be finite, got inf for feature 7",
        ),
        ({"z": np.ones((2, 2))}, "z must be a vector"),
        ({"R": np.eye(39)}, "R must have as many rows"),
        ({"R": 2 * np.eye(40)}, "R must have ones on its diagonal"),
        ({"R": np.triu(np.ones((40, 40)))}, "R must be symmetric"),
        ({"R": np.full((40, 40), np.nan)}, "R must be finite"),
        ({"z": np.ma.masked_greater(np.arange(40.0), 8)}, "z must have no masked entries"),
        ({"R": np.ma.masked_equal(np.eye(40), 0)}, "R must have no masked entries"),
        ({"n": 2}, "n must be a number of rows"),
        ({"n": np.arange(40) + 100}, "got 100 for feature 0 and 139 for feature 39: leave"),
    ],
)
def test_bad_arguments(change, message):
    *_, z, R = data()
    with pytest.raises(ValueError, match=message):
        summary_of(**({"z": z, "R": R, "n": 300} | change))
