import numpy as np
import pytest

from fastmf import GeneralizedRBM
from fastmf.cli import _options, _rows, main
from fastmf.datasets import read_array
from fastmf.evaluation import flip


@pytest.fixture
def noisy(stripes, tmp_path):
    np.save(tmp_path / "noisy.npy", flip(stripes, 0.1, np.random.default_rng(1)))
    return tmp_path / "noisy.npy"


def denoise(model, data, output, *options):
    return main(["denoise", str(model), str(data), "--output", str(output), *map(str, options)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("suffix", _options.OUTPUTS)
def test_what_is_written_is_read_again(tmp_path, suffix, dtype):
    array = np.random.default_rng(0).random((3, 4)).astype(dtype)
    _rows.write(tmp_path / f"out{suffix}", _rows.Rows(array, None, None))
    np.testing.assert_array_equal(read_array(tmp_path / f"out{suffix}").astype(dtype), array)


def test_denoise_writes_what_the_machine_says(model, noisy, tmp_path):
    output = tmp_path / "out.csv"
    assert denoise(model, noisy, output, "--flip-probability", 0.1) == 0
    machine = GeneralizedRBM.load(model)
    expected = machine.denoise(np.load(noisy), flip_probability=0.1, random_state=0)
    np.testing.assert_allclose(read_array(output), expected, rtol=1e-7)


def test_options_of_the_method_reach_the_machine(model, noisy, tmp_path):
    np.save(tmp_path / "data.npy", np.eye(6, np.load(noisy).shape[1]))
    options = ["--n-starts", 3, "--seed", 5]
    options += ["--candidates", tmp_path / "data.npy"]
    assert denoise(model, noisy, tmp_path / "out.npy", "--flip-probability", 0.1, *options) == 0
    expected = GeneralizedRBM.load(model).denoise(
        np.load(noisy), flip_probability=0.1, n_starts=3,
        candidates=np.load(tmp_path / "data.npy"), random_state=5,
    )  # fmt: skip
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(model="noisy.npy"), "not"),
        (dict(data="none.npy"), "there is no such file"),
        (dict(output="out.txt"), "must end in .npy or .npz or .csv"),
        (dict(options=["--flip-probability", "2"]), "must be in [0, 1]"),
        (dict(options=["--noise-variance", "-1"]), "--noise-variance must be positive"),
        (dict(options=["--flip-probability", "0.1", "--n-starts", "0"]), "--n-starts must"),
    ],
)
def test_errors_are_one_line_and_nothing_is_written(
    model, noisy, tmp_path, capsys, monkeypatch, change, message
):
    monkeypatch.chdir(tmp_path)
    what = dict(model=model, data="noisy.npy", output="out.npy") | change
    options = what.pop("options", ["--flip-probability", "0.1"])
    assert denoise(*what.values(), *options) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and message in err
    assert not list(tmp_path.glob("out*"))


def test_real_values_are_restored(stripes, tmp_path):
    rng = np.random.default_rng(0)
    clean = stripes - 0.4 + 0.1 * rng.normal(size=stripes.shape)
    np.save(tmp_path / "x.npy", clean)
    command = ["train", "rbm", str(tmp_path / "x.npy"), "--output", str(tmp_path / "m.npz")]
    # Double precision, as in other tests: one compilation less.
    options = ["--visible", "gaussian", "--hidden-units", "3", "--epochs", "2", "--quiet"]
    options += ["--dtype", "float64"]
    assert main([*command, *options, "--learning-rate", "0.01"]) == 0
    noisy = clean + 0.3 * rng.normal(size=stripes.shape)
    np.save(tmp_path / "y.npy", noisy)
    files, options = (tmp_path / "m.npz", tmp_path / "y.npy"), ["--noise-variance", 0.09]
    assert denoise(*files, tmp_path / "out.csv", *options) == 0
    restored = read_array(tmp_path / "out.csv")
    assert ((restored - clean) ** 2).mean() < ((noisy - clean) ** 2).mean()
