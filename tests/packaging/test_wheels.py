"""Wheels that load on old systems: `make wheels` with the Python that runs the tests."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"

pytestmark = [pytest.mark.slow, pytest.mark.time_limit(1200)]


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="wheels are built on Debian")
def test_a_wheel_runs_the_readme_program_where_nothing_else_is():
    result = subprocess.run(
        ["tools/build_wheels.sh", _VERSION],
        cwd=_ROOT,
        env={**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert result.returncode == 0, result.stdout
    assert f"== Python {_VERSION}: good" in result.stdout
    tag = f"cp{_VERSION.replace('.', '')}"
    assert list((_ROOT / "dist").glob(f"tf_byteps-*-{tag}-{tag}-manylinux_2_27_x86_64.whl"))
