"""The script of the rates of `reliable` runs, and its table has a row for each solver."""


def test_a_quick_run_prints_a_table(load, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["reliability.py", "--quick"])
    load("reliability").main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| solver") and len(lines) == 2 + 3 * 5
    assert all(line.count(" % |") == 2 for line in lines[2:])
