import os
import sys

import pytest

from tests.debian import find_program
from tests.slurm.cluster import PACKAGES, Slurm


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    """See `Slurm`; needs root."""
    if os.geteuid() != 0:
        pytest.skip("munged, slurmctld and slurmd are started by root only")
    for name in ("slurmctld", "slurmd", "srun", "munged"):
        find_program(name, *PACKAGES)
    cluster = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def program():
    """The command that runs a function of tests/launch/programs.py."""
    return lambda *arguments: [sys.executable, "-m", "tests.launch.programs", *arguments]
