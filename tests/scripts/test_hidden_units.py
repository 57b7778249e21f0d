import re


def test_kinds_are_beside_independent_pixels(load, mnist, capsys):
    script, kinds = load("experiments/hidden_units"), ["binary", "gaussian"]
    script.main(["--data", str(mnist), "--kinds", *kinds, "--hidden", "3", "--epochs", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == kinds
    for line in lines:
        # Weak couplings: hardly more than the pixels, by annealing from above and from below.
        values = re.findall(r"(?:AIS|reverse|pixels) +(-[0-9.]+)", line)
        above, below, pixels = map(float, values)
        assert abs(above - below) < 0.5 and abs(below - pixels) < 2
