import csv


def test_a_small_run_gives_both_figures(load, mnist, capsys):
    script = load("experiments/adaptive_tap")
    folder = mnist / "out"
    script.main(
        ["--data", str(mnist), "--output", str(folder), "--hidden", "3", "--epochs", "2",
         "--iterations", "2", "3", "--batch-sizes", "1", "13"]
    )  # fmt: skip
    for name in ("cost", "training"):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    with open(folder / "cost.csv", newline="") as file:
        assert [row[0] for row in csv.reader(file)] == ["starts", "1", "13"]
    with open(folder / "training.csv", newline="") as file:
        assert len(list(csv.reader(file))) == 1 + 2 * 2 * 2
    assert "adaptive TAP, 3 iterations" in capsys.readouterr().out
