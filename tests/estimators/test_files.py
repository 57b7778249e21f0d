import numpy as np
import pytest

import fastmf as mf

X = (np.random.default_rng(0).random((20, 5)) < 0.5).astype(float)
ESTIMATORS = {
    "rbm": lambda **o: mf.GeneralizedRBM(2, n_epochs=1, random_state=0, **o).fit(X),
    "fully_visible": lambda **o: mf.FullyVisibleBoltzmannMachine(l2=0.1, **o).fit(X),
}


@pytest.fixture(scope="module", params=ESTIMATORS)
def fitted(request):
    return ESTIMATORS[request.param]()


def test_options_and_what_was_learned_come_back(tmp_path, fitted):
    fitted.save(tmp_path / "file.npz")
    again = type(fitted).load(tmp_path / "file.npz")
    forgotten = fitted._forgotten
    options, expected = again.get_params(), fitted.get_params()
    assert {k: v for k, v in options.items() if k not in forgotten} == {
        k: v for k, v in expected.items() if k not in forgotten
    }
    assert repr(again.model_) == repr(fitted.model_) and again.n_iter_ == fitted.n_iter_


def test_a_file_of_another_estimator_or_none_is_refused(tmp_path, fitted):
    path = tmp_path / "file.npz"
    fitted.save(path)
    with pytest.raises(ValueError, match="is not a DeepBoltzmannMachine of fastmf"):
        mf.DeepBoltzmannMachine.load(path)
    fitted.model_.save(path)
    with pytest.raises(ValueError, match="holds no estimator"):
        type(fitted).load(path)


def test_an_option_that_only_a_pickle_can_hold_is_named(tmp_path):
    machine = ESTIMATORS["rbm"]().set_params(learning_rate=lambda epoch: 0.1)
    with pytest.raises(TypeError, match=r"learning_rate=.* cannot be saved"):
        machine.save(tmp_path / "file.npz")
    assert not (tmp_path / "file.npz").exists()
