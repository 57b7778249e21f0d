"""A run continues only from members that it has written, whatever is trained."""

import json

import numpy as np
import pytest

import fastmf as mf

rng = np.random.default_rng(0)
B = (rng.random((40, 6)) < 0.4).astype(float)
R = rng.normal(size=(40, 6))
LABELS = rng.integers(0, 3, (40, 4))
OPTIONS = dict(n_epochs=3, batch_size=10, learning_rate=0.01, random_state=0)
STOPPING = dict(early_stopping=5)
MACHINES = {
    "tap": lambda **o: mf.GeneralizedRBM(3, gradient="tap", **o).fit(B),
    "persistent": lambda **o: mf.GeneralizedRBM(
        3, gradient="tap", starts="persistent", n_starts=7, **o
    ).fit(B),
    "pcd": lambda **o: mf.GeneralizedRBM(3, gradient="pcd", n_starts=7, **o).fit(B),
    "categorical": lambda **o: mf.GeneralizedRBM(
        2, visible="categorical", gradient="pcd", **o
    ).fit(LABELS, sample_weight=np.linspace(0.5, 1, 40)),
    "deep pcd": lambda **o: mf.DeepBoltzmannMachine(
        (4, 3), pretraining_epochs=0, gradient="pcd", **STOPPING, **o
    ).fit(B),
    "conditional stopping": lambda **o: mf.ConditionalRBM(2, **STOPPING, **o).fit(R, B[:, :3]),
}  # fmt: skip


@pytest.fixture(scope="module", params=MACHINES)
def run(request, tmp_path_factory):
    """The checkpoint of a run stopped after two epochs, a way to go on, and the run's number."""
    path = tmp_path_factory.mktemp("run") / "run.npz"
    make = MACHINES[request.param]
    checkpoint = mf.evaluation.Checkpoint(path)
    make(**OPTIONS, callbacks=[checkpoint, lambda state: state.epoch == 2])
    number = list(MACHINES).index(request.param)
    return path, lambda: make(**OPTIONS, callbacks=[checkpoint]), number


def _altered(array):
    """Alterations after which a member is not the one that a run has written."""
    yield "lacking", None
    yield "object", np.array([{}, None], object)
    yield "one axis more", array[None]
    yield "longer", np.concatenate([np.atleast_1d(array)] * 2)
    if array.dtype.kind == "U":
        yield "long text", np.array(["x" * 10**4] * array.size)
        yield "lines", np.array(["a\nb"] * array.size)
        return
    yield "text", np.full(array.shape, "1")
    yield "one more", array + 1
    yield "rounding", np.nextafter(array, 9) if array.dtype.kind == "f" else array + 0.5
    yield "other type", array.astype({4: np.float64, 8: np.float32}[array.itemsize])


def test_no_run_continues_from_members_that_it_has_not_written(run):
    """Each member is altered in one way in each run, in all ways in all runs together."""
    path, fit, number = run
    sound = path.read_bytes()
    with np.load(path) as file:
        members = dict(file)
    for k, (name, array) in enumerate(members.items()):
        alterations = list(_altered(array))
        what, altered = alterations[(k + number) % len(alterations)]
        changed = {k: v for k, v in members.items() if k != name}
        if altered is not None:
            changed[name] = altered
        np.savez(path, **changed)
        with pytest.raises(ValueError) as caught:
            fit()
            print(name, what)  # for the report of a failure
        text, part = str(caught.value), name.partition("/")[0]
        assert str(path) in text and (part in text or name == "digests"), (name, what, text)
        assert "\n" not in text and len(text) < len(str(path)) + 400, (name, what)
    path.write_bytes(sound)
    assert fit().n_iter_ == 3


def fitted(path, kind="tap"):
    return MACHINES[kind](**OPTIONS, callbacks=[mf.evaluation.Checkpoint(path)])


@pytest.mark.parametrize("name", ["chains/0", "completed/9", "best/model", "velocity/x", "more"])
def test_members_that_no_such_run_has(tmp_path, name):
    path = tmp_path / "run.npz"
    fitted(path)
    with np.load(path) as file:
        np.savez(path, **dict(file) | {name: np.ones((2, 2))})
    with pytest.raises(ValueError, match=name.partition("/")[0]):
        fitted(path)


@pytest.mark.parametrize("text", ["3", "[1]", "{}", "nonsense", "[" * 10**5, '{"seed": "x"}'])
def test_options_of_a_run_that_are_none(tmp_path, text):
    path = tmp_path / "run.npz"
    fitted(path)
    with np.load(path) as file:
        np.savez(path, **dict(file) | {"run": np.array([text])})
    with pytest.raises(ValueError, match=r"run\.npz is not a checkpoint") as caught:
        fitted(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_a_run_of_another_kind_names_what_differs(tmp_path):
    path = tmp_path / "run.npz"
    fitted(path)
    with pytest.raises(ValueError, match="differs in"):
        fitted(path, "pcd")
    assert json.loads(str(np.load(path)["run"][0]))["gradient"] == "tap"
