"""What the processes of tests import: which of them can be forked from one that has done it."""

import dataclasses
import importlib.util
import os
import re
import sys

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# They call what a test has written.
_CALLING = ("tests.cluster", "tests.workers")
_WITHOUT_PROGRAM = ("tf_byteps.scheduler", "tf_byteps.server")
# Programs that import no TensorFlow or no JAX shall not find it in memory.
_WITH_KERAS = re.compile(
    r"^ *(import|from) (tensorflow|keras|tf_byteps\.(gradients|keras|ops|strategy))\b"
    r"|^from tests import side_by_side",
    re.M,
)
# With JAX, Keras imports TensorFlow as soon as a program seeds its random numbers: nearly all do.
# Those that look at what is imported shall find no more than they import.
_LOOKS = re.compile(r"\bsys\.modules\b")
_WITH_JAX = re.compile(r"^ *(import|from) (jax|tf_byteps\.jax)\b", re.M)
# Read when Keras and JAX are imported.
_OF_BACKENDS = ("KERAS_BACKEND", "JAX_PLATFORMS", "JAX_ENABLE_X64", "XLA_FLAGS")
# A process may have others of these than the one it is forked from: they are read later, or by
# tf_byteps alone.
_READ_LATER = re.compile(
    r"(BYTEPS|DMLC|TESTS|PYTEST)_|(TF_CONFIG|CUDA_VISIBLE_DEVICES|PYTHONUNBUFFERED|PWD)$"
)
# Of the helpers that start processes: read when TensorFlow is imported.
ENVIRONMENT = {"PYTHONPATH": _ROOT, "TF_CPP_MIN_LOG_LEVEL": "2"}

_SERVERS = ("tf_byteps.job", "tf_byteps.metrics.sources", "tf_byteps.process", "argparse")
# A test's functions may be in its own module, and are called by one that plans a job as bpslaunch.
_WORKERS = (
    "numpy",
    "psutil",
    "pytest",
    "benchmarks.sessions",
    "tf_byteps.dispatch",
    "tf_byteps.exchange.host",
    "tf_byteps.job",
    "tf_byteps.launch.plan",
    "tf_byteps.runtime",
)
_ON_TENSORFLOW = (
    "keras",
    "tensorflow",
    *_WORKERS,
    "tf_byteps.ops",
    "tf_byteps.strategy.strategy",
    "tf_byteps.training",
    "tf_byteps.keras",
    "tf_byteps.keras.layers",
    "tf_byteps.keras.optimizers",
)
_ON_JAX = ("jax", *_WORKERS, "tf_byteps.jax")
_KERAS_ON_JAX = ("keras", *_ON_JAX, "tf_byteps.keras", "tf_byteps.strategy.jax.strategy")
_SEEDED_KERAS_ON_JAX = (*_KERAS_ON_JAX, "tensorflow")


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a process finds imported.

    Attributes:
        modules: the names of modules.
        variables: those that are read when these are imported, with their values.
    """

    modules: tuple[str, ...]
    variables: frozenset[tuple[str, str]] = frozenset()


def kind_of(command, env):
    """What a command may find imported.

    Args:
        command: what is started, a list.
        env: its variables.

    Returns:
        A `Kind`; None if it must be started as usual.
    """
    modules = _modules(command, env)
    if modules is None:
        return None
    reads = "jax" in modules or env.get("KERAS_BACKEND") == "tensorflow"
    given = {name: env[name] for name in _OF_BACKENDS if reads and name in env}
    if _fixed(env) != _fixed({**os.environ, **ENVIRONMENT, **given}):
        return None
    return Kind(modules, frozenset(given.items()))


def _modules(command, env):
    if list(command[:2]) != [sys.executable, "-m"]:
        return None
    if command[2] in _WITHOUT_PROGRAM:
        return _SERVERS
    if command[2] not in _CALLING:
        return None
    program = command[3]
    path = program if os.path.isabs(program) else importlib.util.find_spec(program).origin
    with open(path) as file:
        text = file.read()
    with_keras, with_jax = _WITH_KERAS.search(text), _WITH_JAX.search(text)
    if (with_keras or with_jax) and env.get("KERAS_BACKEND") == "jax":
        return _KERAS_ON_JAX if _LOOKS.search(text) else _SEEDED_KERAS_ON_JAX
    if with_keras:
        return _ON_TENSORFLOW
    return _ON_JAX if with_jax else _WORKERS


def _fixed(env):
    return {name: value for name, value in env.items() if not _READ_LATER.match(name)}
