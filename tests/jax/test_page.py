"""The program of docs/jax.md: what two workers print is what one process computes."""

import pathlib
import re
import subprocess
import sys

import pytest

from tests.cluster import clean_environment

pytest.importorskip("jaxlib", reason="jax is not installed")

_PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "jax.md"
_LAUNCH = [sys.executable, "-m", "tf_byteps.launch", "-np", "2", "--servers", "1"]


def _losses(command, folder):
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=200,
        cwd=folder,
        env=clean_environment(JAX_PLATFORMS="cpu"),
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return re.findall(r"worker \d: loss ([\d.]+)", result.stdout)


def test_two_workers_print_what_one_process_prints(tmp_path):
    (program,) = re.findall(r"^```python\n(.*?)^```$", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "train.py").write_text(program)
    alone = _losses([sys.executable, "train.py"], tmp_path)
    assert len(alone) == 1
    assert _losses([*_LAUNCH, sys.executable, "train.py"], tmp_path) == alone * 2
