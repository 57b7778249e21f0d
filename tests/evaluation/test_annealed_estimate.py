import numpy as np
from html_tables import shown

import fastmf as mf


def test_estimates_in_notebooks_and_consoles():
    weights = np.array([-0.5, 0.5])
    found = mf.evaluation.AnnealedEstimate(2.0, 0.1, 2.25, 0.2, weights, weights, None, 50)
    expected = "AnnealedEstimate(log-partition 2 +- 0.1, reverse 2.25 +- 0.2, converged)"
    assert repr(found) == expected
    title, (ends, rows) = shown(found)
    assert title == "AnnealedEstimate"
    assert ends[1][:3] == ("forward", "2", "0.1") and ends[2][:3] == ("reverse", "2.25", "0.2")
    assert rows[0] == ("converged", "yes") and rows[1] == ("gap", "0.25 (tolerance 0.5)")
    assert shown(found._replace(reverse=9.0))[1][1][0] == ("converged", "no")


def test_an_estimate_below_a_certain_bound_is_not_converged():
    weights = np.array([-0.5, 0.5])
    found = mf.evaluation.AnnealedEstimate(
        2.0, 0.1, 2.25, 0.2, weights, weights, None, 50, 0.5, 2.4
    )
    assert found.converged and abs(found.lacking - 0.4) < 1e-12
    wrong = found._replace(lower_bound=7.0)
    assert not wrong.converged and wrong.lacking == 5.0
    assert "5 nats below 7, a certain lower bound" in wrong.message
    assert found._replace(lower_bound=1.0).lacking == 0


def test_ends_that_agree_by_chance_are_not_closed():
    weights = np.zeros(300)
    found = mf.evaluation.AnnealedEstimate(
        2.0, 0.1, 2.1, 0.1, weights, weights, None, 50, tolerance=0.2
    )
    assert found.converged
    for uncertain in ({"error": 0.3}, {"reverse_error": 0.3}, {"error": np.nan}):
        assert not found._replace(**uncertain).converged
    assert "errors of 0.3 and 0.1 (tolerance 0.2)" in found._replace(error=0.3).message
