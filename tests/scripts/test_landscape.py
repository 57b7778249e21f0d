import csv


def test_a_small_run_gives_all_figures(script, mnist, capsys):
    folder = mnist / "out"
    script.main(
        ["--data", str(mnist), "--output", str(folder), "--hidden", "3", "--epochs", "2",
         "--starts", "30", "--steps", "20", "--quiet"]
    )  # fmt: skip
    names = ["free-energy", "quality", *(f"{kind}-{k}" for kind in ("map", "data") for k in (1, 2))]
    for name in names:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    with open(folder / "quality.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header[0] == "epoch"
    assert len(rows) == 2
    assert "epoch 2: " in capsys.readouterr().out
