import csv

import fastmf as mf


def rows(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


def test_a_small_run_gives_all_figures_and_goes_on_from_its_checkpoint(script, mnist, capsys):
    folder = mnist / "out"
    command = ["--data", str(mnist), "--output", str(folder), "--hidden", "2", "3"]
    script.main([*command, "--epochs", "2", "--starts", "2"])
    names = ["likelihood", "denoising", "restored", "digit", "fields-2", "fields-3", "activity-3"]
    for name in names:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert len(rows(folder / "likelihood.csv")) == 1 + 2 * 2
    scores = rows(folder / "denoising.csv")
    assert len(scores) == 1 + 7 * len(script.FLIP_PROBABILITY)
    assert {row[1] for row in scores[1:]} >= {"pointwise optimal", "nearest neighbour"}
    # Eq. 39: the mean over solutions is at most their log-sum-exp, so that likelihoods are larger.
    _, *measured = rows(folder / "solutions.csv")
    assert [row[:2] for row in measured] == [["2", "1"], ["3", "1"]]
    for row in measured:
        n, left, mean, total = (float(value) for value in row[2:6])
        assert n >= 1 and left == 0 and mean >= total - 1e-9
    header, *digit = rows(folder / "digit.csv")
    assert len(header) == 12 and header[1] == "p = 0" and header[-1] == "p = 0.5"
    of_method = {name: [float(value) for value in row] for name, *row in digit}
    assert list(of_method) == [
        "noisy", "pointwise optimal", "nearest neighbour", "nearest of 1,000", "TAP, 2", "TAP, 3",
        "TAP, 2, from images", "TAP, 3, from images",
    ]  # fmt: skip
    # Without noise nothing is to be restored; the flipped pixels become more from column to column.
    assert all(row[0] == 1 for name, row in of_method.items() if "nearest" not in name)
    assert of_method["noisy"] == sorted(of_method["noisy"], reverse=True)

    machine = (folder / "rbm-3.npz").read_bytes()
    (folder / "rbm-3.npz").unlink()
    (folder / "checkpoint-2.npz").unlink()
    script.main([*command, "--epochs", "2", "--starts", "2"])
    assert (folder / "rbm-3.npz").read_bytes() == machine


def test_deep_machines_end_after_some_time_and_resume(script, mnist, capsys):
    folder = mnist / "out"
    command = [
        "--data", str(mnist), "--output", str(folder), "--hidden", "3,2", "4,3", "--epochs", "4",
        "--pretraining", "1", "--hours",
    ]  # fmt: skip

    def epochs(hours):
        script.main([*command, hours])
        return [row[:2] for row in rows(folder / "likelihood.csv")][1:]

    # Time is counted from the end of the first epoch.
    assert epochs("0") == [[name, epoch] for name in ("3-2", "4-3") for epoch in "12"]
    assert epochs("1") == [[name, epoch] for name in ("3-2", "4-3") for epoch in "1234"]
    machine = mf.DeepBoltzmannMachine.load(folder / "rbm-4-3.npz")
    assert [w.shape for w in machine.weights_] == [(16, 4), (4, 3)] and not machine.centred
    assert "4-3 hidden units: log-likelihood" in capsys.readouterr().out
