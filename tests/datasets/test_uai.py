import gzip
import math
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

import fastmf as mf
from fastmf.datasets import load_uai, save_uai

DATA = Path(os.environ.get("FASTMF_DATA", "."), "uai")

# Three variables of 2, 3 and 2 states, with two factors of the first two, and a constant.
TEXT = """MARKOV
3
2 3 2
6
1 1
2 0 1
2 1 0
2 2 1
0
1 0

3
 1 2 0.5
6
 1 2 3
 4 5 6
6
 1 0.1
 2 0.2
 3 0.3
6
 1 0 2
 0 1 1
1
 2.5
2
 0.25 4
"""


def weight_of(a, b, c):
    """Product of the factors in TEXT."""
    first = np.array([[1, 2, 3], [4, 5, 6.0]])[a, b]
    second = np.array([[1, 0.1], [2, 0.2], [3, 0.3]])[b, a]
    third = np.array([[1, 0, 2], [0, 1, 1.0]])[c, b]
    return [1, 2, 0.5][b] * first * second * third * 2.5 * [0.25, 4][a]


STATES = np.indices((2, 3, 2)).reshape(3, -1).T


def written(path, text, name="model.uai"):
    (path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return path / name


@pytest.mark.parametrize("text", [
    TEXT,
    "\ufeff" + TEXT.replace("\n", "\r\n"),
    " ".join(TEXT.split()),
    "\n\n" + TEXT.replace("\n", "\t\n \n"),
    TEXT.replace("MARKOV", "bayes").rstrip().replace("\n", "\r"),
])  # fmt: skip
@pytest.mark.parametrize("packed", [False, True])
def test_a_model_against_the_product_of_its_factors(tmp_path, text, packed):
    text = text.encode()
    uai = load_uai(written(tmp_path, gzip.compress(text, mtime=0) if packed else text))
    assert uai.clamp is None
    assert uai.log_factor == pytest.approx(math.log(2.5))
    assert uai.model.prior.sizes.tolist() == [2, 3, 2]
    energies = uai.model.energy(STATES)
    with np.errstate(divide="ignore"):
        expected = np.log([weight_of(*state) for state in STATES])
    np.testing.assert_allclose(uai.log_factor - energies, expected, atol=1e-12)


@pytest.mark.parametrize("text", ["1 2 1", "1\n1 2 1", "2 2 1 2 1", "1 2 1\n\n"])
def test_evidence(tmp_path, text):
    uai = load_uai(written(tmp_path, TEXT), written(tmp_path, text, "evidence"))
    np.testing.assert_array_equal(uai.clamp, [np.nan, np.nan, 1])
    found = mf.exact(uai.model, clamp=uai.clamp)
    weights = [weight_of(*state) * state[2] for state in STATES]
    assert found.log_partition + uai.log_factor == pytest.approx(math.log(sum(weights)))
    assert mf.tap(mf.BoltzmannMachine(np.zeros((7, 7)), uai.model.prior), clamp=uai.clamp).converged


# Factors of one to four variables, zeros, a variable with one state, and scopes that repeat.
SCOPES = [(0,), (2, 0), (0, 1, 2), (3, 1, 2, 4), (4, 3, 0), (0, 1, 2), (5, 1, 3)]
SIZES = [2, 3, 2, 2, 3, 1]


@pytest.mark.parametrize("name", ["m.uai", "m.LG", "m.uai.lg.gz"])
@pytest.mark.parametrize("observed", [False, True])
def test_factors_of_several_variables(tmp_path, name, observed):
    rng, text = np.random.default_rng(2), f"MARKOV 6 {' '.join(map(str, SIZES))} {len(SCOPES)} "
    text += " ".join(f"{len(scope)} " + " ".join(map(str, scope)) for scope in SCOPES)
    states = np.indices(SIZES).reshape(len(SIZES), -1)
    weights = np.ones(states.shape[1])
    for scope in SCOPES:
        table = rng.random([SIZES[k] for k in scope])
        table *= rng.random(table.shape) < 0.8
        weights *= table[tuple(states[list(scope)])]
        with np.errstate(divide="ignore"):
            entries = table if name == "m.uai" else np.log(table)
        text += f" {table.size} " + " ".join(map(repr, entries.ravel().tolist()))
    path = written(tmp_path, gzip.compress(text.encode()) if name.endswith("gz") else text, name)
    if observed:
        weights *= (states[3] == 1) & (states[1] == 2)
    uai = load_uai(path, written(tmp_path, "2 3 1 1 2", "evidence") if observed else None)
    found = mf.exact(uai.model, clamp=uai.clamp)
    assert found.log_partition == pytest.approx(math.log(weights.sum()))
    means = uai.model.prior.by_group(found.mean)
    for k, size in enumerate(SIZES):
        expected = np.bincount(states[k], weights, size) / weights.sum()
        np.testing.assert_allclose(means[k][:size], expected, atol=1e-12)
    best = mf.most_probable(uai.model, clamp=uai.clamp)
    assert best.score == pytest.approx(math.log(weights.max()))
    np.testing.assert_array_equal(best.assignment[: uai.n_variables], states[:, weights.argmax()])
    save_uai(uai.model, path)
    again = mf.exact(load_uai(path).model, clamp=uai.clamp)
    assert again.log_partition == pytest.approx(found.log_partition)


# --- round trips ----------------------------------------------------------------------------------


def machines():
    rng = np.random.default_rng(0)
    matrix = np.triu(rng.normal(size=(9, 9)) * (rng.random((9, 9)) < 0.6), 1)
    matrix[:3, :3] = matrix[3:5, 3:5] = matrix[5:, 5:] = 0
    prior = mf.Categorical([rng.normal(size=q) for q in (3, 2, 4)])
    forbidden = matrix.copy()
    forbidden[0, 3] = -np.inf
    excluded = mf.Categorical([[0.0, -np.inf, 2.0], [0.5, 1.0], [0.0, 1.0, 2.0, -np.inf]])
    spins = np.array([[0.0, 0.3, 0.0], [0.3, 0.0, -0.8], [0.0, -0.8, 0.0]])
    yield mf.BoltzmannMachine(csr_array(matrix + matrix.T), prior)
    yield mf.BoltzmannMachine(csr_array(forbidden + forbidden.T), excluded)
    yield mf.BoltzmannMachine(matrix + matrix.T, prior)
    yield mf.BoltzmannMachine((matrix + matrix.T).astype(np.float32), prior)
    # Logarithms whose exponentials overflow, or are 0.
    yield mf.BoltzmannMachine(csr_array(1500 * (matrix + matrix.T)), prior)
    yield mf.BoltzmannMachine(spins, mf.Ising(rng.normal(size=3)))
    yield mf.BoltzmannMachine(csr_array(spins), mf.Bernoulli([900.0, -2000.0, 1.0]))
    yield mf.BoltzmannMachine(csr_array((2, 2)), mf.Binomial(np.zeros(2), 3))


@pytest.mark.parametrize("machine", list(machines()))
@pytest.mark.parametrize("name", ["model.uai", "model.uai.gz"])
def test_round_trips(tmp_path, machine, name):
    save_uai(machine, tmp_path / name, log_factor=-1.5)
    uai = load_uai(tmp_path / name)
    assert uai.log_factor == pytest.approx(-1.5, rel=1e-14)
    expected, found = mf.exact(machine), mf.exact(uai.model)
    scale = 1e-12 * max(1, abs(expected.log_partition))
    assert found.log_partition == pytest.approx(expected.log_partition, abs=scale)
    if isinstance(machine.prior, mf.Categorical):
        np.testing.assert_allclose(found.mean, expected.mean, atol=1e-12)
        dense, again = (csr_array(m.couplings).toarray() for m in (machine, uai.model))
        np.testing.assert_allclose(again, dense, rtol=1e-12, atol=1e-12)
    else:
        values = {"Ising": [-1, 1], "Bernoulli": [0, 1], "Binomial": [0, 1, 2, 3]}
        mean = uai.model.prior.by_group(found.mean) @ values[type(machine.prior).__name__]
        np.testing.assert_allclose(mean, expected.mean, atol=1e-12)
    save_uai(uai.model, tmp_path / "again")
    states = np.zeros(len(uai.model.prior.sizes), int)
    again = load_uai(tmp_path / "again").model
    np.testing.assert_allclose(again.energy(states), uai.model.energy(states), rtol=1e-12)


def test_evidence_is_written(tmp_path):
    machine = mf.BoltzmannMachine(np.zeros((3, 3)), mf.Ising(np.zeros(3)))
    save_uai(machine, tmp_path / "m.UAI.GZ", clamp=[-1, np.nan, 1])
    uai = load_uai(tmp_path / "m.UAI.GZ", tmp_path / "m.UAI.evid")
    np.testing.assert_array_equal(uai.clamp, [0, np.nan, 1])
    with pytest.raises(ValueError, match="outside the support"):
        save_uai(machine, tmp_path / "m.uai", clamp=[0.5, np.nan, 1])
    with pytest.raises(ValueError, match="log_factor must be in"):
        save_uai(machine, tmp_path / "m.uai", log_factor=1e300)
    assert not (tmp_path / "m.uai").exists()


# --- refused --------------------------------------------------------------------------------------

HEAD = "MARKOV\n2\n2 2\n1\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("LIMID 2", "line 1: it begins with b'LIMID'"),
        ("MARKOV two", "line 1: the number of variables must be an integer at least 1, got 'two'"),
        ("MARKOV 0 0", "number of variables must be an integer at least 1"),
        ("MARKOV\n2\n2 2.5\n1", "line 3: a number of states must be an integer"),
        ("MARKOV 2 2 0 1", "a number of states must be an integer from 1"),
        ("MARKOV 99999999999999999999 2", "got '99999999999999999999'"),
        ("MARKOV 900000000000 2", "it ends on line 1, within a number of states"),
        ("MARKOV 2 60000 60000 1 2 0 1 3600000000 1", "it ends on line 1"),
        ("MARKOV 2 60000 2000000000 0", "bytes, more than max_bytes"),
        ("MARKOV 2 2 2 90000000000 1 0", "it ends on line 1"),
        ("MARKOV 3 2 2 2 1 3 0 1 0", "factor 0 has variable 0 twice"),
        (
            "MARKOV 25 " + "2 " * 25 + "1 25 " + " ".join(map(str, range(25))),
            "33554432 joint states",
        ),
        (HEAD + "2 0 2", "line 5: a variable of factor 0 must be an integer from 0 to 1, got '2'"),
        (HEAD + "2 1 1", "factor 0 has variable 1 twice"),
        (HEAD + "2 0 1\n3\n1 1 1", "line 6: factor 0 has 3 entries.* 4 states"),
        (HEAD + "2 0 1\n4\n1 1 1", "within an entry of factor 0"),
        (HEAD + "2 0 1\n4\n1 1\n-1 1", "line 8: an entry of factor 0 must be a number at least 0"),
        (HEAD + "2 0 1\n4\n1 1\nnan 1", "line 8.*got 'nan'"),
        (HEAD + "2 0 1\n4\n1 1\ninf 1", "line 8.*got 'inf'"),
        (HEAD + "2 0 1\n4\n1 1\n1_0 1", "line 8.*got '1_0'"),
        (HEAD + "2 0 1\n4\n0 0\n0 0", "line 8: factor 0 is zero everywhere"),
        ("MARKOV 1 2 2 1 0 1 0 2 0 1 2 1 0", "no state of variable 0 is possible"),
        (HEAD + "1 1\n2\n1 1\n\n5", "line 9: there are more words"),
        ((HEAD + "1 1\n2\n1 1\n\n5").replace("\n", "\r"), "line 9: there are more words"),
        (b"\x93NUMPY\x01\x00\xff\xfe", "it begins with"),
        (b"\x1f\x8b\x08\x00broken", "cannot be read as a UAI file"),
        (gzip.compress(TEXT.encode(), mtime=0)[:-30], "cannot be read as a UAI file"),
        ("MARKOV " + "1" * 3000, "integer at least 1"),
    ],
)
def test_models_that_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        load_uai(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, None) for text in ("0", "1 0", "0\n")),
        ("2 0 1", "number of observed variables"),
        ("2\n1 0 1\n1 0 0", "number of observed variables"),
        ("1 7 0", "no variable 7"),
        ("1 0 2", "no variable 0 with a state 2"),
        ("2 0 0 0 1", "variable 0 has two states"),
        ("1 0 x", "must be an integer"),
        ("1 0 -1", "must be an integer"),
        ("1 0 1 " * 20, "number of observed variables"),
    ],
)
def test_evidence_that_is_refused(tmp_path, text, message):
    model, evidence = written(tmp_path, TEXT), written(tmp_path, text, "evidence")
    if message is None:
        assert load_uai(model, evidence).clamp is None
        return
    with pytest.raises(ValueError, match=f"cannot be read as evidence: .*{message}"):
        load_uai(model, evidence)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        load_uai(tmp_path / "none.uai")
    with pytest.raises(ValueError, match="is a folder"):
        load_uai(tmp_path)
    with pytest.raises(FileNotFoundError):
        load_uai(written(tmp_path, TEXT), tmp_path / "none.evid")


# --- the competition ------------------------------------------------------------------------------


@pytest.mark.skipif(not DATA.exists(), reason="FASTMF_DATA has no folder uai")
@pytest.mark.parametrize("name", ["Segmentation_11", "Grids_11", "ObjectDetection_11"])
def test_competition(name):
    uai = load_uai(DATA / f"pr_{name}.uai.gz", DATA / f"pr_{name}.uai.evid")
    found = mf.exact(uai.model, clamp=uai.clamp)
    expected = float((DATA / f"pr_{name}.uai.PR").read_text().split()[-1]) * math.log(10)
    # The files have six digits.
    assert found.log_partition + uai.log_factor == pytest.approx(expected, rel=1e-5)
    sizes = uai.model.prior.sizes
    numbers = (DATA / f"pr_{name}.uai.MAR").read_text().split()[-(sizes.sum() + len(sizes)) :]
    marginals = np.delete(np.array(numbers, float), np.cumsum(sizes + 1) - sizes - 1)
    np.testing.assert_allclose(found.mean, marginals, atol=1e-6)
