"""`pip install` into new virtual environments, with pip's default build isolation."""

import os
import pathlib
import subprocess
import venv

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.time_limit(900)]

_EXCHANGE_ALONE = """
import tensorflow as tf
import tf_byteps
assert tf_byteps.__file__.startswith({folder!r}), tf_byteps.__file__
tf_byteps.init()
result = tf_byteps.push_pull(tf.constant([1.0, 2.0]), op=tf_byteps.Sum, name="installed")
print(result.numpy().tolist())
tf_byteps.shutdown()
"""

_EXCHANGE_IN_JAX = """
import jax, tf_byteps
tf_byteps.init()
double = jax.jit(lambda x: 2 * tf_byteps.jax.push_pull(x, op="sum", name="installed"))
print(double(jax.numpy.asarray([1.0, 2.0])).tolist())
tf_byteps.shutdown()
"""


def _run(*command, **options):
    """Runs a command outside of the sources; returns its exit code and output."""
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    result = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=800,
        cwd=options.get("cwd", "/"),
        env={**variables, "TF_CPP_MIN_LOG_LEVEL": "3", **options.get("variables", {})},
    )
    return result.returncode, result.stdout


def _pip_install(environment, *arguments, **options):
    pip = [environment / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install"]
    return _run(*pip, *arguments, cwd=_ROOT, **options)


@pytest.fixture(scope="module")
def new_environment(tmp_path_factory):
    def create(name):
        folder = tmp_path_factory.mktemp(name)
        venv.create(folder, with_pip=True, symlinks=True)
        return folder

    return create


@pytest.fixture(scope="module")
def with_tensorflow(new_environment):
    """An environment after `pip install .[cpu]`."""
    environment = new_environment("cpu")
    code, output = _pip_install(environment, ".[cpu]")
    assert code == 0, output
    return environment


def test_installs_with_tensorflow(with_tensorflow):
    code, output = _run(
        with_tensorflow / "bin" / "python",
        "-c",
        _EXCHANGE_ALONE.format(folder=str(with_tensorflow)),
    )
    assert code == 0, output
    assert output.splitlines()[-1] == "[1.0, 2.0]"


def test_the_commands_are_installed(with_tensorflow):
    for command in ("bpslaunch", "bpstop"):
        code, output = _run(with_tensorflow / "bin" / command, "--help")
        assert code == 0 and command in output


def test_builds_with_the_targets_tensorflow_and_takes_no_other(with_tensorflow):
    code, output = _pip_install(with_tensorflow, "-v", "--force-reinstall", "--no-deps", ".")
    assert code == 0, output
    assert "tensorflow-cpu==2.21.*" not in output


def test_installs_without_tensorflow_for_servers_and_schedulers(new_environment):
    environment = new_environment("base")
    code, output = _pip_install(environment, ".")
    assert code == 0, output
    python = environment / "bin" / "python"
    code, output = _run(python, "-c", "import tf_byteps._engine as e; print(e.sum_kernels()[0])")
    assert (code, output.strip()) == (0, "scalar")
    code, output = _run(python, "-c", "import tf_byteps; tf_byteps.push_pull")
    assert code == 1 and "No module named 'tensorflow'" in output
    code, output = _run(python, "-c", "import tf_byteps.server, tf_byteps.scheduler")
    assert code == 0, output


def test_installs_for_jax_alone(new_environment):
    """Without TensorFlow, which is neither compiled against nor downloaded."""
    environment = new_environment("jax")
    code, output = _pip_install(
        environment, "-v", ".[jax]", variables={"TF_BYTEPS_TENSORFLOW": "0"}
    )
    assert code == 0 and "tensorflow-cpu" not in output, output
    (package,) = environment.glob("lib/python3*/site-packages/tf_byteps")
    assert not (package / "_ops.so").exists() and not (package.parent / "tensorflow").exists()
    python = environment / "bin" / "python"
    code, output = _run(python, "-c", _EXCHANGE_IN_JAX, variables={"JAX_PLATFORMS": "cpu"})
    assert (code, output.splitlines()[-1]) == (0, "[2.0, 4.0]"), output
    code, output = _run(python, "-c", "import tf_byteps; tf_byteps.ops")
    assert code == 1 and "No module named 'tensorflow'" in output


def test_a_missing_bazel_is_named(new_environment, tmp_path):
    environment = new_environment("no_bazel")
    for tool in ["gcc", "g++"]:
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    code, output = _pip_install(
        environment, "--no-deps", ".", variables={"PATH": f"{environment}/bin:{tmp_path}"}
    )
    assert code != 0
    assert "apt-get install bazel-bootstrap" in output
