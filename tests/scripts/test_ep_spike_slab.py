import ast

import numpy as np


def test_the_papers_tables_and_the_time_of_schedules(script, capsys):
    script.main(["paper", "--sets", "2", "--max-iter", "100"])
    said = capsys.readouterr().out
    assert "convergent EP converged in 10 of 10 sets" in said
    script.main(["schedules", "--problems", "2", "--repeats", "1"])
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 4 and not any("*" in row for row in rows[1:])
    for row in rows[2:]:
        # All schedules end at the same fixed point.
        assert len({cell.split(")")[0] for cell in row.split("(")[1:]}) == 1


def test_counts_fall_with_the_tolerance(script, capsys):
    script.main(["counts", "--sets", "3", "--max-iter", "100"])
    lines = capsys.readouterr().out.splitlines()[1:]
    left = [ast.literal_eval(line.split("residual ")[1].split("  change")[0]) for line in lines]
    assert len(left) == 16
    for k in range(0, 16, 4):
        assert (np.diff(left[k : k + 4], axis=0) <= 0).all()
