"""Runs a command with a real Slurm of three nodes: `python -m tests.slurm sinfo`."""

import os
import pathlib
import subprocess
import sys
import tempfile

from tests.slurm.cluster import Slurm


def main(command):
    with tempfile.TemporaryDirectory(prefix="tf_byteps_slurm_") as folder:
        cluster = Slurm(pathlib.Path(folder))
        try:
            cluster.start()
            return subprocess.run(command, env={**os.environ, **cluster.environment}).returncode
        finally:
            cluster.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
