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
