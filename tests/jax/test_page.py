"""The programs of docs/jax.md and docs/keras_on_jax.md, on two workers."""

import pathlib
import re
import subprocess
import sys

import pytest

from tests.cluster import clean_environment

pytest.importorskip("jaxlib", reason="jax is not installed")

_DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
_LAUNCH = [sys.executable, "-m", "tf_byteps.launch", "-np", "2", "--servers", "1"]


def _programs(page):
    return re.findall(
        r"^```python\n(.*?)^```$", (_DOCS / page).read_text(), re.MULTILINE | re.DOTALL
    )


def _losses(command, folder, **variables):
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=200,
        cwd=folder,
        env=clean_environment(JAX_PLATFORMS="cpu", **variables),
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return re.findall(r"worker \d: loss ([\d.]+)", result.stdout)


@pytest.mark.parametrize("program", _programs("jax.md"), ids=["fixed", "elastic"])
def test_two_workers_print_what_one_process_prints(tmp_path, program):
    (tmp_path / "train.py").write_text(program)
    alone = _losses([sys.executable, "train.py"], tmp_path)
    assert len(alone) == 1
    assert _losses([*_LAUNCH, sys.executable, "train.py"], tmp_path) == alone * 2


def test_two_workers_average_their_logs(tmp_path):
    (program,) = _programs("keras_on_jax.md")
    (tmp_path / "train.py").write_text(program)
    command = [*_LAUNCH, sys.executable, "train.py"]
    first, second = _losses(command, tmp_path, KERAS_BACKEND="jax")
    assert first == second
