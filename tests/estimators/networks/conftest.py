import pytest
from network_data import table

import fastmf as mf


@pytest.fixture(scope="session")
def machine():
    return mf.FullyVisibleBoltzmannMachine().fit(table())


@pytest.fixture(scope="session")
def samples(machine):
    return machine.bootstrap(400, 1)
