import io
import os
import pickle
import time
import tracemalloc
import zipfile
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
    for labels in (np.array(["a", None]), np.array([b"a"])):
        with pytest.raises(TypeError, match=r"labels=.* cannot be saved"):
            write_arrays(tmp_path / "file", {"labels": labels})
    assert not list(tmp_path.iterdir())


def test_errors_speak_of_files_and_not_of_pickles(tmp_path):
    path = tmp_path / "model"
    path.write_text("not a model")
    with pytest.raises(ValueError, match=r"damaged or no file of fastmf: not an \.npz archive$"):
        load(path)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*absent\.$"):
        rbm().save(tmp_path / "absent" / "model")


def written(path, arrays, *, compressed=True):
    (np.savez_compressed if compressed else np.savez)(path, **arrays)
    return path


def peak(function):
    """Largest memory that a call has held, in bytes."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refused(path, says, **options):
    with pytest.raises(ValueError, match=says) as caught:
        load(path, **options)
    text = str(caught.value)
    assert str(path) in text and "\n" not in text and len(text) < len(str(path)) + 300


@pytest.fixture
def small_limit(monkeypatch):
    monkeypatch.setattr("fastmf.models._io.MIN_MEMORY_BYTES", 2**20)


def test_a_bomb_needs_no_more_memory_than_allowed(tmp_path, small_limit):
    """32 MiB in a file of some 40 KiB, of which one may be read."""
    huge = RBM(np.zeros((2**11, 2**11)), Bernoulli(np.zeros(2**11)), Bernoulli(np.zeros(2**11)))
    path = written(tmp_path / "bomb.npz", model_to_arrays(huge))
    assert path.stat().st_size < 2**18
    assert peak(lambda: refused(path, "more than max_bytes=1048576; pass a larger")) < 2**21
    assert load(path, max_bytes=2**27).weights.shape == (2**11, 2**11)
    # Uncompressed, it has the size of its file.
    assert load(written(tmp_path / "x.npz", model_to_arrays(huge), compressed=False))


def test_members_that_no_model_has_are_not_read(tmp_path, small_limit):
    arrays = model_to_arrays(rbm()) | {"more": np.zeros(2**21)}
    path = written(tmp_path / "x.npz", arrays)
    assert peak(lambda: load(path)) < 2**21
    path = written(tmp_path / "y.npz", {"model": np.array(["RBM"]), "more": np.zeros(2**21)})
    assert peak(lambda: refused(path, "lacks the member 'weights'")) < 2**21


def test_members_of_the_wrong_type_are_not_read(tmp_path):
    sound = model_to_arrays(rbm())
    for name, array in (
        ("weights", np.zeros(2**21, int)),
        ("weights", np.zeros((1, 4, 3))),
        ("visible", np.full(2**20, "x")),
        ("visible.field", np.zeros((2**11, 2**10), complex)),
        ("model", np.full(2**20, "RBM")),
    ):
        path = written(tmp_path / "x.npz", sound | {name: array})
        says = f"member '{name}' must hold"
        assert peak(lambda path=path, says=says: refused(path, says)) < 2**21


def test_a_header_that_does_not_fit_the_data(tmp_path):
    path, content = tmp_path / "x.npz", io.BytesIO()
    np.lib.format.write_array_header_1_0(
        content, {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)}
    )
    rbm().save(path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "y.npz", "w") as new:
        for name in old.namelist():
            new.writestr(name, content.getvalue() if name == "weights.npy" else old.read(name))
    assert peak(lambda: refused(tmp_path / "y.npz", "does not have the size of its shape")) < 2**21


@pytest.mark.parametrize("text", ["x" * 10**6, "RBM\n" * 10, "\0", "../x"])
def test_names_of_no_model_are_shown_in_one_short_line(tmp_path, text):
    refused(written(tmp_path / "x.npz", {"model": np.array([text])}), "it holds .* expected one of")
    many = {"model": np.array(["RBM"]), "weights": np.ones((4, 3)), "visible": np.array([text])}
    with pytest.raises(LookupError) as caught:
        load(written(tmp_path / "y.npz", many))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize("count", ["-1", "0", "x", "9" * 5000, "99999", "2"])
def test_numbers_of_parts_that_are_none(tmp_path, count):
    model = RBM(np.ones((3, 2)), Concatenated(Ising(np.ones(2)), Ising(np.ones(1))), Ising([1, 1]))
    arrays = model_to_arrays(model) | {"visible": np.array(["concatenated", count])}
    path = written(tmp_path / "x.npz", arrays)
    if count == "2":
        assert load(path).weights.shape == (3, 2)
    else:
        refused(path, "visible")


def test_a_model_in_a_folder_of_itself(tmp_path):
    arrays = model_to_arrays(rbm()) | {"visible": np.array(["concatenated", "1"])}
    name = "visible"
    for _ in range(1500):
        name += ".0"
        arrays[name] = np.array(["concatenated", "1"])
    refused(written(tmp_path / "x.npz", arrays, compressed=False), "recursion|is not a model")


def test_nan_in_the_units_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.setattr("fastmf.models._io.USER_REGISTRY", {"Own": Own})
    model = RBM(np.ones((3, 2)), Own(np.ones(3)), Own(np.ones(2)))
    arrays = model_to_arrays(model) | {"hidden.shift": np.array([1, np.nan])}
    refused(written(tmp_path / "x.npz", arrays), "member 'hidden.shift' must hold numbers, got NaN")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_files_of_killed_processes_are_removed_after_a_day(tmp_path, monkeypatch):
    path = tmp_path / "model.npz"
    unrelated = ["model.npz.tmp", "model.npz.mine-too.tmp", "a_model.npz.ab12cd34.tmp"]
    leftover = "model.npz.ab12cd_4.tmp"
    for name in [*unrelated, leftover]:
        (tmp_path / name).write_text("")
    rbm().save(path)
    assert names(tmp_path) == sorted([*unrelated, leftover, "model.npz"])
    now = time.time()
    for name in [*unrelated, leftover]:
        os.utime(tmp_path / name, (now - 86500, now - 86500))
    rbm().save(path)
    assert names(tmp_path) == sorted([*unrelated, "model.npz"])
