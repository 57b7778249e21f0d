"""What the estimators of RBMs and DBMs share, on a DBM of one hidden layer and on an RBM."""

import numpy as np
import pytest

import fastmf as mf

X = (np.random.default_rng(0).random((40, 6)) < [0.9, 0.9, 0.9, 0.1, 0.1, 0.1]).astype(float)
OPTIONS = {"n_epochs": 3, "batch_size": 10, "random_state": 0}


@pytest.fixture(scope="module")
def machines():
    rbm = mf.GeneralizedRBM(3, **OPTIONS).fit(X)
    return rbm, mf.DeepBoltzmannMachine((3,), **OPTIONS).fit(X)


def test_a_dbm_of_one_hidden_layer_is_an_rbm(machines):
    rbm, dbm = machines
    np.testing.assert_array_equal(dbm.weights_[0], rbm.weights_)
    np.testing.assert_array_equal(dbm.transform(X), rbm.transform(X))
    np.testing.assert_array_equal(dbm.score_samples(X), rbm.score_samples(X))
    np.testing.assert_array_equal(dbm.sample(5, random_state=1), rbm.sample(5, random_state=1))


def test_scores_use_the_estimated_log_partition(machines):
    for machine in machines:
        expected = machine.score_samples(X, log_partition=machine.log_partition())
        np.testing.assert_array_equal(machine.score_samples(X), expected)
        assert machine.score(X) == pytest.approx(expected.mean())
        exact = mf.exact(machine.model_).log_partition
        assert machine.log_partition() == pytest.approx(exact, abs=0.05)


def test_names_of_outputs_count_the_highest_layer(machines):
    for machine in machines:
        assert len(machine.get_feature_names_out()) == 3
