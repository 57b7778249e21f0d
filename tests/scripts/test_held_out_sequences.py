import numpy as np


def test_relatives_are_held_out_and_log_z_has_two_ends(script, rows, tmp_path):
    script.main(["--quick", "--output", str(tmp_path)])
    (row,) = rows(tmp_path / "held_out.csv")
    lower, upper = float(row["lower"]), float(row["upper"])
    # The entropy of the chain is 1.081 nats a position, and 1.386 of independent positions.
    assert abs(upper - lower) < 0.03 and -1.15 < lower < -1.05
    rng = np.random.default_rng(0)
    X = np.repeat(rng.integers(0, 4, (30, 10)), 5, axis=0)
    X[:, 3] = rng.integers(0, 4, 150)
    train, test = script.divided(X, 0)
    assert 0 < len(test) <= 38 and len(train) + len(test) == 150
    assert ((train[:, None] == test).mean(2) < 0.8).all()
