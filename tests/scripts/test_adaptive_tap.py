import csv


def test_a_small_run_gives_figure_and_times(load, mnist, capsys):
    script = load("experiments/adaptive_tap")
    folder = mnist / "out"
    script.main(
        ["--data", str(mnist), "--output", str(folder), "--hidden", "3", "--epochs", "2",
         "--iterations", "2", "3"]
    )  # fmt: skip
    assert (folder / "training.png").read_bytes().startswith(b"\x89PNG")
    with open(folder / "training.csv", newline="") as file:
        assert len(list(csv.reader(file))) == 1 + 2 * 2 * 2
    text = capsys.readouterr().out
    assert "adaptive TAP, 3 iterations" in text and "an iteration from 100 starts" in text
