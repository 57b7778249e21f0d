import ast

import numpy as np


def test_the_papers_tables(script, capsys):
    script.main(["paper", "--quick"])
    printed = capsys.readouterr()
    assert printed.err.count("convergent EP converged in 2 of 2 sets") == 5
    # Of each damping, sets that do not converge, and sets that do.
    counts = [int(line.split()[1]) for line in printed.out.splitlines() if "[" in line]
    assert [a + b for a, b in zip(counts[:5], counts[5:], strict=True)] == [2] * 5


def test_rows_are_uniform_on_the_sphere(script):
    (X, y), (X_test, y_test) = script.data_set(np.random.default_rng(0))
    assert X.shape == (10, 25) and X_test.shape == (1000, 25)
    assert y.shape == (10,) and y_test.shape == (1000,)
    np.testing.assert_allclose(np.linalg.norm(np.vstack([X, X_test]), axis=1), 1)
    # Second moments of a direction are 1/25, its mean is zero.
    np.testing.assert_allclose(X_test.T @ X_test / 1000, np.eye(25) / 25, atol=0.01)
    assert abs(X_test.mean(0)).max() < 5 / np.sqrt(25 * 1000)


def test_counts_fall_with_the_tolerance(script, capsys):
    script.main(["counts", "--sets", "3", "--max-iter", "100"])
    lines = capsys.readouterr().out.splitlines()[1:]
    left = [ast.literal_eval(line.split("residual ")[1].split("  change")[0]) for line in lines]
    assert len(left) == 16
    for k in range(0, 16, 4):
        assert (np.diff(left[k : k + 4], axis=0) <= 0).all()
