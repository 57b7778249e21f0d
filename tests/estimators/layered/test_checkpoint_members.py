"""Each member of a checkpoint is checked before it is used, whatever is trained."""

import json

import numpy as np
import pytest

import fastmf as mf

rng = np.random.default_rng(0)
B = (rng.random((40, 6)) < 0.4).astype(float)
R = rng.normal(size=(40, 6))
LABELS = rng.integers(0, 3, (40, 4))
OPTIONS = dict(n_epochs=3, batch_size=10, learning_rate=0.01, random_state=0)
STOPPING = dict(early_stopping=True, validation_fraction=0.2, patience=5)
MACHINES = {
    "tap": lambda **o: mf.GeneralizedRBM(3, gradient="tap", **o).fit(B),
    "float32": lambda **o: mf.GeneralizedRBM(3, gradient="tap", **o).fit(B.astype(np.float32)),
    "persistent": lambda **o: mf.GeneralizedRBM(
        3, gradient="tap", starts="persistent", n_starts=7, **o
    ).fit(B),
    "pcd": lambda **o: mf.GeneralizedRBM(3, gradient="pcd", n_starts=7, **o).fit(B),
    "preconditioned": lambda **o: mf.GeneralizedRBM(3, preconditioning=0.1, **o).fit(B),
    "stopping": lambda **o: mf.GeneralizedRBM(3, gradient="tap", **STOPPING, **o).fit(B),
    "bounded": lambda **o: mf.GeneralizedRBM(
        2, visible="truncated_gaussian", hidden="gaussian", gradient="pcd", **o
    ).fit(np.clip(R, -1, 1)),
    "categorical": lambda **o: mf.GeneralizedRBM(
        2, visible="categorical", gradient="pcd", **o
    ).fit(LABELS, sample_weight=np.linspace(0.5, 1, 40)),
    "deep": lambda **o: mf.DeepBoltzmannMachine((4, 3), pretraining_epochs=0, **o).fit(B),
    "deep pcd": lambda **o: mf.DeepBoltzmannMachine(
        (4, 3), pretraining_epochs=0, gradient="pcd", **STOPPING, **o
    ).fit(B),
    "conditional": lambda **o: mf.ConditionalRBM(2, **o).fit(R, B[:, :3]),
    "conditional stopping": lambda **o: mf.ConditionalRBM(2, **STOPPING, **o).fit(R, B[:, :3]),
}  # fmt: skip


@pytest.fixture(scope="module", params=MACHINES)
def run(request, tmp_path_factory):
    """The checkpoint of a run stopped after two epochs, a way to go on, and the run's number."""
    path = tmp_path_factory.mktemp("run") / "run.npz"
    make = MACHINES[request.param]
    make(**OPTIONS, checkpoint=path, callbacks=[lambda state: state.epoch == 2])
    return path, lambda: make(**OPTIONS, checkpoint=path), list(MACHINES).index(request.param)


def _altered(name, array):
    """Alterations after which a member is none of this run."""
    yield "lacking", None
    yield "object", np.array([{}, None], object)
    yield "one axis more", array[None]
    yield "longer", np.concatenate([np.atleast_1d(array)] * 2)
    yield "empty", array[:0]
    if array.dtype.kind == "U":
        yield "long text", np.array(["x" * 10**4] * array.size)
        yield "numbers", np.zeros(array.shape)
        yield "lines", np.array(["a\nb"] * array.size)
        return
    yield "text", np.full(array.shape, "1")
    yield "complex", array.astype(complex)
    if name == "position":
        for value in ([-1, 0, 0], [0, 2**40, 0], [2, 0, 7], [3, 1, 0], [99, 0, 0], [1, 0, 0]):
            yield f"{value}", np.array(value)
        yield "floats", array + 0.5
    elif not name.startswith("history/"):
        yield "NaN", np.full(array.shape, np.nan, array.dtype)
        if not name.startswith("velocity") or name.endswith(("field", "weights", "couplings")):
            # The velocity has parameters that are not learned, too: bounds may be infinite.
            yield "infinite", np.full(array.shape, np.inf, array.dtype)
        if not name.startswith("velocity"):
            yield "other type", array.astype({4: np.float64, 8: np.float32}[array.itemsize])
        yield "whole", np.ones(array.shape, int)
    if name.partition("/")[0] in ("chains", "preconditioners"):
        yield "out of range", np.full(array.shape, -3.5, array.dtype)
    if name.endswith("weights") and not name.startswith("velocity"):
        yield "huge", np.full(array.shape, 1e30, array.dtype)


# Members that many runs have are altered in one of so many ways in each, so that all runs together
# alter them in all ways.
SHARES = {"run": 4, "position": 4, "solutions": 4} | dict.fromkeys(
    ("model", "velocity", "best", "history"), 8
)


def test_no_run_goes_on_from_members_that_are_none_of_it(run):
    path, go_on, number = run
    sound = path.read_bytes()
    with np.load(path) as file:
        members = dict(file)
    for k, (name, array) in enumerate(members.items()):
        share = SHARES.get(name.partition("/")[0], 1)
        for what, altered in list(_altered(name, array))[(k + number) % share :: share]:
            changed = {k: v for k, v in members.items() if k != name}
            if altered is not None:
                changed[name] = altered
            np.savez(path, **changed)
            with pytest.raises(ValueError) as caught:
                go_on()
                print(name, what)  # for the report of a failure
            text, part = str(caught.value), name.partition("/")[0]
            assert str(path) in text and part in text, (name, what, text)
            assert "\n" not in text and len(text) < len(str(path)) + 400, (name, what)
    path.write_bytes(sound)
    assert go_on().n_iter_ == 3


@pytest.mark.parametrize("name", ["chains/0", "solutions/9", "best/model", "velocity/x", "more"])
def test_members_that_no_such_run_has(tmp_path, name):
    path = tmp_path / "run.npz"

    def fit():
        return MACHINES["tap"](**OPTIONS, checkpoint=path)

    fit()
    with np.load(path) as file:
        np.savez(path, **dict(file) | {name: np.ones((2, 2))})
    with pytest.raises(ValueError, match=name.partition("/")[0]):
        fit()


@pytest.mark.parametrize("text", ["3", "[1]", "{}", "nonsense", "[" * 10**5, '{"seed": "x"}'])
def test_options_of_a_run_that_are_none(tmp_path, text):
    path = tmp_path / "run.npz"
    MACHINES["tap"](**OPTIONS, checkpoint=path)
    with np.load(path) as file:
        np.savez(path, **dict(file) | {"run": np.array([text])})
    with pytest.raises(ValueError, match=r"run\.npz is not a checkpoint") as caught:
        MACHINES["tap"](**OPTIONS, checkpoint=path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_a_waiting_time_that_the_scores_contradict(tmp_path):
    path = tmp_path / "run.npz"
    MACHINES["stopping"](**OPTIONS, checkpoint=path)
    with np.load(path) as file:
        members = dict(file)
    scores = members["history/validation_log_likelihood"]
    best, waited = int(scores.argmax()), int(members["position"][2])
    assert waited == len(scores) - 1 - best
    members["position"] = np.array([3, 0, waited + 1])
    np.savez(path, **members)
    with pytest.raises(ValueError, match=f"must hold {waited} epochs without a better score"):
        MACHINES["stopping"](**OPTIONS, checkpoint=path)


def test_a_run_of_another_kind_names_what_differs(tmp_path):
    path = tmp_path / "run.npz"
    MACHINES["tap"](**OPTIONS, checkpoint=path)
    with pytest.raises(ValueError, match="differs in"):
        MACHINES["pcd"](**OPTIONS, checkpoint=path)
    assert json.loads(str(np.load(path)["run"][0]))["gradient"] == "tap"
