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
