import numpy as np
import pytest

from fastmf import GeneralizedRBM
from fastmf.cli import _options, _rows, main
from fastmf.datasets import read_array
from fastmf.evaluation import flip


@pytest.fixture
def noisy(stripes, tmp_path):
    np.save(tmp_path / "clean.npy", stripes)
    np.save(tmp_path / "noisy.npy", flip(stripes, 0.1, np.random.default_rng(1)))
    return tmp_path / "noisy.npy"


def denoise(model, data, output, *options):
    return main(["denoise", str(model), str(data), "--output", str(output), *map(str, options)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("suffix", _options.OUTPUTS)
def test_what_is_written_is_read_again(tmp_path, suffix, dtype):
    array = np.random.default_rng(0).random((3, 4)).astype(dtype)
    _rows.write(tmp_path / f"out{suffix}", array)
    np.testing.assert_array_equal(read_array(tmp_path / f"out{suffix}").astype(dtype), array)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv"])
def test_denoise_writes_what_the_machine_says(model, noisy, tmp_path, suffix):
    output = tmp_path / f"out{suffix}"
    assert denoise(model, noisy, output, "--flip-probability", 0.1) == 0
    machine = GeneralizedRBM.load(model)
    expected = machine.denoise(np.load(noisy), flip_probability=0.1, random_state=0)
    np.testing.assert_allclose(read_array(output), expected, rtol=1e-7)


def test_options_of_the_method_reach_the_machine(model, noisy, tmp_path):
    np.save(tmp_path / "data.npy", np.eye(6, np.load(noisy).shape[1]))
    options = ["--n-starts", 3, "--anneal", 0.45, 0.3, "--seed", 5]
    options += ["--candidates", tmp_path / "data.npy"]
    assert denoise(model, noisy, tmp_path / "out.npy", "--flip-probability", 0.1, *options) == 0
    expected = GeneralizedRBM.load(model).denoise(
        np.load(noisy),
        flip_probability=0.1,
        n_starts=3,
        candidates=np.load(tmp_path / "data.npy"),
        anneal=[0.45, 0.3],
        random_state=5,
    )
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)


def test_the_score_rises_and_states_can_be_written(model, noisy, stripes, tmp_path, capsys):
    options = ["--flip-probability", 0.1, "--clean", tmp_path / "clean.npy", "--round"]
    assert denoise(model, noisy, tmp_path / "out.npy", *options) == 0
    states = np.load(tmp_path / "out.npy")
    assert set(np.unique(states)) == {0, 1}
    line = capsys.readouterr().out.splitlines()[-1]
    after, before = (float(word.strip("()")) for word in (line.split()[-3], line.split()[-1]))
    assert "Matthews correlation" in line
    assert before < after <= 1
    assert (states != stripes).mean() < (np.load(noisy) != stripes).mean()


@pytest.mark.parametrize("options", [[], ["--round"]], ids=["means", "states"])
def test_spins_are_scored_by_their_signs(stripes, tmp_path, capsys, options):
    spins, model = 2.0 * stripes - 1, tmp_path / "spins.npz"
    machine = GeneralizedRBM(4, visible="ising", hidden="ising", n_epochs=0, random_state=0)
    machine.fit(spins).save(model)
    noisy = np.where(np.random.default_rng(0).random(spins.shape) < 0.3, -spins, spins)
    for name, array in (("clean", spins), ("noisy", noisy)):
        np.save(tmp_path / f"{name}.npy", array)
    options = [*options, "--clean", tmp_path / "clean.npy", "--dtype", "float64"]
    options += ["--flip-probability", 0.3]
    assert denoise(model, tmp_path / "noisy.npy", tmp_path / "out.npy", *options) == 0
    score = float(capsys.readouterr().out.split()[-3])
    # The coefficient of Matthews is Pearson's, of states.
    pairs = [
        (x, y) for x, y in zip(spins, np.sign(np.load(tmp_path / "out.npy")), strict=True)
        if x.std() and y.std()
    ]  # fmt: skip
    expected = sum(np.corrcoef(x, y)[0, 1] for x, y in pairs) / len(spins)
    assert score == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(model="noisy.npy"), "not"),
        (dict(data="none.npy"), "there is no such file"),
        (dict(output="out.txt"), "must end in .npy or .npz or .csv"),
        (dict(options=["--flip-probability", "2"]), "must be in [0, 1]"),
        (dict(options=["--noise-variance", "-1"]), "--noise-variance must be positive"),
        (dict(options=["--flip-probability", "0.1", "--rows", "3", "--clean", "bad.npy"]), "shape"),
        (dict(options=["--flip-probability", "0.1", "--n-starts", "0"]), "--n-starts must"),
    ],
)
def test_errors_are_one_line_and_nothing_is_written(
    model, noisy, tmp_path, capsys, monkeypatch, change, message
):
    monkeypatch.chdir(tmp_path)
    np.save("bad.npy", np.zeros((3, 4)))
    what = dict(model=model, data="noisy.npy", output="out.npy") | change
    options = what.pop("options", ["--flip-probability", "0.1"])
    assert denoise(*what.values(), *options) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and message in err
    assert not list(tmp_path.glob("out*"))


def test_real_values_are_scored_by_their_squared_error(stripes, tmp_path, capsys):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", stripes - 0.4 + 0.1 * rng.normal(size=stripes.shape))
    command = ["train", "rbm", str(tmp_path / "x.npy"), "--output", str(tmp_path / "m.npz")]
    # Double precision, as in other tests: one compilation less.
    options = ["--visible", "gaussian", "--hidden-units", "3", "--epochs", "2", "--quiet"]
    options += ["--dtype", "float64"]
    assert main([*command, *options, "--learning-rate", "0.01"]) == 0
    np.save(tmp_path / "y.npy", np.load(tmp_path / "x.npy") + 0.3 * rng.normal(size=stripes.shape))
    options = ["--noise-variance", 0.09, "--clean", tmp_path / "x.npy"]
    assert denoise(tmp_path / "m.npz", tmp_path / "y.npy", tmp_path / "out.csv", *options) == 0
    words = capsys.readouterr().out.splitlines()[-1].split()
    assert words[:3] == ["mean", "squared", "error,"]
    assert float(words[-3]) < float(words[-1].strip("()")) == pytest.approx(0.09, rel=0.1)
    assert (
        denoise(tmp_path / "m.npz", tmp_path / "y.npy", tmp_path / "o.npy", *options, "--round")
        == 1
    )
