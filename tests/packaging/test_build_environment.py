"""What the build says when something is missing, and where it looks for TensorFlow."""

import json
import os
import pathlib
import subprocess
import sys
import sysconfig
import venv

import pytest

from tf_byteps import _build_check, _build_info

_ROOT = pathlib.Path(__file__).resolve().parents[2]

_ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
import build_environment
try:
    answer = getattr(build_environment, sys.argv[2])()
except build_environment.BuildError as error:
    answer = "BuildError: " + str(error)
print(json.dumps(answer))
"""


def _ask(function, python=sys.executable, **variables):
    result = subprocess.run(
        [python, "-c", _ASK, str(_ROOT / "tools"), function],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **variables},
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture
def environment(tmp_path):
    """An empty virtual environment: (its Python, its folder of packages)."""
    venv.create(tmp_path / "environment", with_pip=False, symlinks=True)
    python = tmp_path / "environment" / "bin" / "python"
    variables = {"base": str(tmp_path / "environment"), "platbase": str(tmp_path / "environment")}
    return str(python), pathlib.Path(sysconfig.get_path("purelib", "venv", variables))


def _pretend_tensorflow(folder, version):
    (folder / "tensorflow").mkdir(parents=True)
    (folder / "tensorflow" / "__init__.py").write_text(version)


def test_missing_tools_are_named_with_the_command_that_installs_them(tmp_path):
    message = _ask("require_tools", PATH=str(tmp_path))
    assert "apt-get install bazel-bootstrap g++" in message
    assert "Bazel" in message and "compiler" in message


def test_all_tools_are_here():
    assert _ask("require_tools") is None


def test_tensorflow_is_required_when_the_target_has_none(environment):
    python, _ = environment
    assert _ask("framework_requirements", python) == ["tensorflow-cpu==2.21.*"]


@pytest.mark.parametrize("version", ["2.21.3", "2.20.0", "2.21.0rc1"])
def test_the_targets_tensorflow_is_used(environment, version):
    python, packages = environment
    _pretend_tensorflow(packages, f"__version__ = '{version}'")
    assert _ask("framework_requirements", python) == []


def test_another_tensorflow_is_refused(environment):
    python, packages = environment
    _pretend_tensorflow(packages, "__version__ = '2.19.1'")
    message = _ask("framework_requirements", python)
    assert message.startswith("BuildError: ")
    assert "needs TensorFlow 2.21 or 2.20," in message and "has 2.19.1" in message
    assert "pip install 'tensorflow-cpu==2.21.*'" in message


def test_a_broken_tensorflow_is_an_error_and_not_an_absent_one(environment):
    python, packages = environment
    _pretend_tensorflow(packages, "raise OSError('no libstdc++')")
    message = _ask("framework_requirements", python)
    assert message.startswith("BuildError: ") and "no libstdc++" in message


def test_packages_of_the_build_do_not_count_as_the_targets(environment, tmp_path):
    # pip puts a build's own packages on PYTHONPATH.
    python, _ = environment
    _pretend_tensorflow(tmp_path / "overlay", "__version__ = '2.21.0'")
    (tmp_path / "overlay" / "pybind11").mkdir()
    (tmp_path / "overlay" / "pybind11" / "__init__.py").touch()
    overlay = str(tmp_path / "overlay")
    assert _ask("framework_requirements", python, PYTHONPATH=overlay) == ["tensorflow-cpu==2.21.*"]
    assert _ask("additional_path", python, PYTHONPATH=overlay) == [overlay]


@pytest.mark.parametrize("choice", ["", "0"])
def test_a_build_for_jax_alone_needs_no_tensorflow(environment, choice):
    python, packages = environment
    if not choice:  # it shows in what the environment has
        assert _ask("with_tensorflow", python) is True
        (packages / "jaxlib").mkdir(parents=True)
        (packages / "jaxlib" / "__init__.py").touch()
    variables = {"TF_BYTEPS_TENSORFLOW": choice}
    assert _ask("with_tensorflow", python, **variables) is False
    needed = [] if not choice else ["jaxlib>=0.10.2,<0.11"]
    assert _ask("framework_requirements", python, **variables) == needed
    assert _ask("framework_requirements", python, TF_BYTEPS_TENSORFLOW="1") == [
        "tensorflow-cpu==2.21.*"
    ]
    _pretend_tensorflow(packages, "__version__ = '2.21.0'")
    assert _ask("with_tensorflow", python, **variables) is not bool(choice)


def test_another_choice_is_refused():
    message = _ask("with_tensorflow", TF_BYTEPS_TENSORFLOW="no")
    assert message.startswith("BuildError: TF_BYTEPS_TENSORFLOW is 'no': set it to 1 for")


def test_import_refuses_another_tensorflow():
    _build_check.check_tensorflow(_build_info.TENSORFLOW_VERSION)
    with pytest.raises(ImportError) as refusal:
        _build_check.check_tensorflow("2.19.1")
    message = str(refusal.value)
    assert f"built for TensorFlow {_build_info.TENSORFLOW_VERSION}" in message
    assert "installed 2.19.1" in message and "pip install ." in message


@pytest.mark.parametrize("used", ["tf_byteps.push_pull(1.0)", "tf_byteps.BytePSStrategy"])
def test_public_names_refuse_another_tensorflow(used):
    code = f"import tensorflow, tf_byteps\ntensorflow.__version__ = '2.19.1'\n{used}"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100
    )
    assert result.returncode == 1
    assert "ImportError: tf_byteps was built for TensorFlow" in result.stderr.splitlines()[-1]
