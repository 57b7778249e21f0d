import pickle
from copy import copy, deepcopy
from typing import NamedTuple

import numpy as np
import pytest

from fastmf.models import CRBM, DBM, RBM, BoltzmannMachine, SparseLinearModel, load
from fastmf.models._io import MODELS, model_to_arrays, write_arrays
from fastmf.priors import Bernoulli, Concatenated, Gaussian, Ising, register


def rbm(dtype=float):
    rng = np.random.default_rng(0)
    return RBM(
        rng.normal(size=(4, 3)).astype(dtype),
        Bernoulli(rng.normal(size=4)),
        Gaussian(rng.normal(size=3), 2.0),
    )


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_rbm_comes_back_bit_by_bit(tmp_path, dtype):
    model = rbm(dtype)
    model.save(tmp_path / "model")
    back = load(str(tmp_path / "model"))
    assert type(back) is RBM
    assert type(back.visible) is Bernoulli
    assert type(back.hidden) is Gaussian
    np.testing.assert_array_equal(back.weights, model.weights, strict=True)
    for layer, other in zip(back.layers, model.layers, strict=True):
        for field, expected in zip(layer, other, strict=True):
            np.testing.assert_array_equal(field, expected, strict=True)


@pytest.mark.parametrize("copied", [copy, deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
@pytest.mark.parametrize("kind", MODELS)
def test_copies_can_no_more_be_written_to_than_models(kind, copied):
    # Solvers keep what they make of couplings: a change would not be seen.
    units, spins = Bernoulli(np.ones(3)), Ising(np.ones(2))
    W = np.ones((3, 2))
    model = {
        "RBM": lambda: RBM(W, units, spins),
        "DBM": lambda: DBM((W, W.T), (units, spins, Concatenated(spins, Bernoulli(0.0)))),
        "CRBM": lambda: CRBM(W, W, W[:2], np.ones(3), np.ones(2)),
        "BoltzmannMachine": lambda: BoltzmannMachine(1 - np.eye(3), units),
        "SparseLinearModel": lambda: SparseLinearModel(
            W, np.ones(3), 0.5, Gaussian(np.ones(2), 1.0)
        ),
    }[kind]()
    found, expected = model_to_arrays(copied(model)), model_to_arrays(model)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
        assert found[name].flags.writeable == array.flags.writeable


def test_boltzmann_machine_comes_back(tmp_path):
    model = BoltzmannMachine(np.ones((3, 3)) - np.eye(3), Ising(np.arange(3.0)))
    model.save(tmp_path / "model.npz")
    back = load(tmp_path / "model.npz")
    np.testing.assert_array_equal(back.couplings, model.couplings)
    np.testing.assert_array_equal(back.prior.field, model.prior.field)


def test_any_damaged_byte_is_noticed_or_harmless(tmp_path):
    path, model = tmp_path / "model", rbm()
    model.save(path)
    sound = path.read_bytes()
    for position in range(0, len(sound), 7):
        path.write_bytes(sound[:position] + bytes([sound[position] ^ 0xFF]) + sound[position + 1 :])
        try:
            back = load(path)
        except ValueError as error:
            assert str(path) in str(error)
        else:
            np.testing.assert_array_equal(back.weights, model.weights)
            np.testing.assert_array_equal(back.hidden.precision, model.hidden.precision)


def test_errors_do_not_quote_the_file(tmp_path):
    path = tmp_path / "model"
    rbm().save(path)
    sound = path.read_bytes()
    path.write_bytes(sound[:27] + b"\x03" + sound[28:])  # the length of a name
    with pytest.raises(ValueError, match="damaged") as error:
        load(path)
    assert len(str(error.value)) < 300 + len(str(path))


@pytest.mark.parametrize("length", [0, 1, 100, 500, -1])
def test_truncated_file(tmp_path, length):
    path = tmp_path / "model"
    rbm().save(path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match=str(path)):
        load(path)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("file.txt", lambda path: path.write_text("weights")),
        ("file.npz", lambda path: np.savez(path, weights=np.ones((2, 2)))),
        ("file.npy", lambda path: np.save(path, np.ones((2, 2)))),
        ("file.npz", lambda path: np.savez(path, weights=np.array([None], dtype=object))),
        ("file.npz", lambda path: np.savez(path, model=np.array(["os.system"]))),
    ],
)
def test_foreign_files(tmp_path, name, write):
    write(tmp_path / name)
    with pytest.raises(ValueError, match=name):
        load(tmp_path / name)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing")


class Own(NamedTuple):
    shift: np.ndarray

    def log_partition(self, b, a):
        return self.shift * b + 0 * a

    def moments(self, b, a):
        return self.shift + 0 * b, 0 * a


def test_own_prior_is_saved_if_registered(tmp_path, monkeypatch):
    monkeypatch.setattr("fastmf.models._io.USER_REGISTRY", own := {})
    monkeypatch.setattr("fastmf.priors._registry.USER_REGISTRY", own)
    beside = Concatenated(Own(np.array([1.0, 2.0])), Bernoulli(np.zeros(1)))
    model = RBM(np.ones((3, 2)), beside, Own(np.array([3.0, 4.0])))
    with pytest.raises(TypeError, match=r"visible.0: Own cannot be saved.*fastmf\.priors\.reg"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []

    assert register(Own) is Own
    model.save(tmp_path / "model")
    found = load(tmp_path / "model")
    assert type(found.hidden) is Own
    np.testing.assert_array_equal(found.hidden.shift, [3, 4])
    np.testing.assert_array_equal(found.visible.parts[0].shift, [1, 2])
    own.clear()
    with pytest.raises(LookupError, match=r"unit prior Own.*unknown here: import the module"):
        load(tmp_path / "model")


def test_only_new_priors_are_registered():
    with pytest.raises(TypeError, match="NamedTuple"):
        register(np.ndarray)
    with pytest.raises(TypeError, match="NamedTuple"):
        register(Own(np.zeros(2)))
    with pytest.raises(ValueError, match="a prior named gaussian exists already"):
        register(NamedTuple("gaussian", [("shift", np.ndarray)]))


def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model"
    write_arrays(path, {"x": np.arange(3)})

    def full_disk(file, **arrays):
        file.write(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_arrays(path, {"x": np.zeros(3)})
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    np.testing.assert_array_equal(np.load(path)["x"], np.arange(3))


def test_objects_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(TypeError, match=r"labels=.* cannot be saved"):
        write_arrays(tmp_path / "file", {"labels": np.array(["a", None])})
    assert not list(tmp_path.iterdir())


def test_errors_speak_of_files_and_not_of_pickles(tmp_path):
    path = tmp_path / "model"
    path.write_text("not a model")
    with pytest.raises(ValueError, match=r"damaged or no file of fastmf: not an \.npz archive$"):
        load(path)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*absent\.$"):
        rbm().save(tmp_path / "absent" / "model")
