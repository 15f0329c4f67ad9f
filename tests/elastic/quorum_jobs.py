"""Jobs of local steps with a quorum, in which one of three workers is lost and another comes."""

import subprocess
import sys

from tests.cluster import ROOT, clean_environment

_ENVIRONMENT = {"BYTEPS_HEARTBEAT_INTERVAL": "1", "OMP_NUM_THREADS": "1"}


def run(program, *arguments, timeout):
    """Runs a job that has to end well; returns what it has printed.

    Args:
        program: the module of its workers.
        *arguments: of the workers.
        timeout: seconds after which it counts as hanging.
    """
    command = [sys.executable, "-m", "tf_byteps.launch", "--min-np", "2", "--max-np", "3"]
    command += ["--host-failures", "0", "--servers", "1", "--", sys.executable, "-m"]
    ended = subprocess.run(
        [*command, program, *map(str, arguments)],
        cwd=ROOT,
        env=clean_environment(**_ENVIRONMENT),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout
