"""The script that measures the calibration of networks."""

import json

import numpy as np
import pytest


@pytest.fixture(scope="module")
def networks(load):
    return load("experiments/networks")


def test_tables_are_drawn_from_the_machine(networks):
    rng = np.random.default_rng(0)
    couplings = networks.symmetric(networks.ring(rng, 4)) / 2
    truth = networks.Truth(couplings, networks.thresholds_of(rng, "ordinal", 4, 0.0))
    assert truth.probabilities.sum() == pytest.approx(1) and len(truth.states) == 81
    machine = truth.fitted(rng, 200_000)
    np.testing.assert_allclose(machine.couplings_, couplings, atol=0.05)
    assert networks.covered(truth, machine)[0] == 6


def test_a_run_goes_on_where_it_was(networks, tmp_path, capsys, monkeypatch):
    few = {kind: (*values[:-1], values[-1][:1]) for kind, values in networks.KINDS.items()}
    monkeypatch.setattr(networks, "KINDS", few)
    options = ["--quick", "--output", str(tmp_path)]
    networks.main([*options, "--tables", "2"])
    path = tmp_path / "tables.jsonl"
    first = path.read_text()
    path.write_text(first + '["edges/binary/6/0/2", [[0.5')  # the run was interrupted here
    networks.main([*options, "--tables", "3"])
    assert path.read_text().startswith(first)
    lines = path.read_text().splitlines()
    keys = [key for key, _ in map(json.loads, lines) if key.startswith("edges")]
    names = ("binary/6", "ordinal/5")
    assert sorted(keys) == [f"edges/{name}/0/{k}" for name in names for k in range(3)]
    assert "45 pairs" in capsys.readouterr().out
    assert (tmp_path / "networks_calibration.png").exists()
