"""Programs of Debian's packages that tests run for real."""

import os
import shutil
import subprocess

import pytest

_PATH = os.pathsep.join(filter(None, [os.environ.get("PATH"), "/usr/sbin", "/sbin"]))


def find_program(name, *packages):
    """The path of a program; installs these packages if it is missing and that may be done.

    Skips the test if the program cannot be had.
    """
    for attempt in range(2):
        path = shutil.which(name, path=_PATH)
        if path is not None:
            return path
        if attempt == 0 and os.geteuid() == 0 and os.path.exists("/usr/bin/apt-get"):
            command = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            subprocess.run(command, env=environment, capture_output=True, check=False)
    pytest.skip(
        f"{name} is missing and could not be installed: apt-get install {' '.join(packages)}"
    )
