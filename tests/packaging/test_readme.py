"""The program in the README does what the README says."""

import ast
import os
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def program(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (_ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 1
    (tmp_path / "train.py").write_text(blocks[0])
    return str(tmp_path / "train.py")


def test_program_needs_only_what_its_installation_brings(program):
    """README installs `.[cpu]`: what that names, and what comes with TensorFlow and Keras."""
    tree = ast.parse(pathlib.Path(program).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))
    modules = {alias.name.split(".")[0] for node in imports for alias in node.names}
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    installed = [*project["dependencies"], *project["optional-dependencies"]["cpu"]]
    names = {re.match(r"[\w-]+", requirement).group() for requirement in installed}
    assert modules - names == {"tf_byteps"}


def _last_epoch(output, prefix):
    """The last epoch's metrics that Keras printed on lines with `prefix`."""
    lines = [line for line in output.splitlines() if line.startswith(prefix) and "loss:" in line]
    assert len(lines) == 10, output
    return {name: float(value) for name, value in re.findall(r"(\w+): ([\d.]+)", lines[-1])}


def _run(*command):
    result = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.mark.extended
def test_program_trains_alone(program):
    assert _last_epoch(_run(sys.executable, program), "")["accuracy"] > 0.9


def test_program_trains_on_two_workers(program):
    with open(program, "a") as file:
        file.write("print('all losses', model.history.history['loss'], flush=True)\n")
    launcher = [sys.executable, "-m", "tf_byteps.launch", "-np", "2", "--servers", "1", "--"]
    output = _run(*launcher, sys.executable, program)
    assert _last_epoch(output, "[worker 0] ")["accuracy"] > 0.9  # no seed is set: it varies
    # Rank 0 alone shows how far it is; the logs are everyone's.
    losses = re.findall(r"^\[worker (\d)\] all losses (.*)$", output, re.MULTILINE)
    assert sorted(rank for rank, _ in losses) == ["0", "1"] and losses[0][1] == losses[1][1], output
    assert not re.search(r"^\[worker 1\] .*step", output, re.MULTILINE), output
