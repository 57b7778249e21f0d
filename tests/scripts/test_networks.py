"""The script that measures the calibration of networks."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def networks(load):
    return load("experiments/networks")


def test_tables_are_drawn_from_the_machine(networks):
    rng = np.random.default_rng(0)
    couplings = networks.ring(rng, 4) / 2
    truth = networks.Truth(couplings, networks.thresholds_of(rng, "ordinal", 4, 0.0))
    assert truth.probabilities.sum() == pytest.approx(1) and len(truth.states) == 81
    machine = truth.fitted(rng, 200_000)
    np.testing.assert_allclose(machine.couplings_, couplings, atol=0.05)
    assert networks.covered(truth, machine)[0] == 6


def test_a_run_goes_on_where_it_was(networks, tmp_path, capsys):
    options = ["--quick", "--parts", "edges", "--output", str(tmp_path)]
    networks.main([*options, "--tables", "2"])
    first = (tmp_path / "edges_binary.csv").read_text()
    (tmp_path / "edges_binary.csv").write_text(first + "2,0.5")  # a line that was cut
    networks.main([*options, "--tables", "3"])
    text = (tmp_path / "edges_binary.csv").read_text()
    assert text.startswith(first)
    lines = networks.lines_in(tmp_path / "edges_binary.csv")
    assert {row[0] for row in lines} == {"0", "1", "2"}
    assert "45 pairs" in capsys.readouterr().out
    assert (tmp_path / "networks_calibration.png").exists()
