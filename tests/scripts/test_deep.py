import csv

import fastmf


def test_a_small_run_gives_all_figures(load, mnist, capsys):
    script = load("experiments/deep")
    folder = mnist / "out"
    script.main(
        ["--data", str(mnist), "--output", str(folder), "--layers", "3,2", "4,3",
         "--epochs", "2", "--pretraining", "1", "--uncentred"]
    )  # fmt: skip
    assert (folder / "likelihood.png").read_bytes().startswith(b"\x89PNG")
    with open(folder / "likelihood.csv", newline="") as file:
        assert [row[:2] for row in csv.reader(file)][1:] == [
            [name, epoch] for name in ("3-2", "4-3") for epoch in ("1", "2")
        ]
    machine = fastmf.DeepBoltzmannMachine.load(folder / "dbm-4-3.npz")
    assert [w.shape for w in machine.weights_] == [(16, 4), (4, 3)]
    assert not machine.centred
    assert "layers (4, 3)" in capsys.readouterr().out


def test_training_ends_after_some_time(load, mnist):
    script = load("experiments/deep")
    folder = mnist / "out"
    command = [
        "--data", str(mnist), "--output", str(folder), "--layers", "3,2", "--epochs", "4",
        "--pretraining", "1", "--hours",
    ]  # fmt: skip

    def epochs(hours):
        script.main([*command, hours])
        with open(folder / "likelihood.csv", newline="") as file:
            return [row[1] for row in csv.reader(file)][1:]

    assert epochs("0") == ["1", "2"]  # time is counted from the end of the first one
    assert epochs("1") == ["1", "2", "3", "4"]  # it goes on
