import csv


def test_a_run_goes_on_with_the_seeds_that_are_missing(script, mnist, capsys):
    machine, output = mnist / "rbm.npz", mnist / "seeds.csv"
    options = [str(machine), "--data", str(mnist), "--output", str(output), "--hidden", "3"]
    options += ["--chains", "20", "--steps", "20"]
    script.main([*options, "--train", "1", "--seeds", "1"])
    first = output.read_text()
    script.main([*options, "--seeds", "3"])
    assert output.read_text().startswith(first)
    with open(output, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["seed"] for row in rows] == ["0", "1", "2"]
    assert all(row["converged"] == "True" for row in rows)
    assert "closed on 3 of 3 seeds" in capsys.readouterr().out.splitlines()[-1]
