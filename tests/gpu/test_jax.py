"""JAX's arrays, and `Model.fit` of Keras on JAX, on GPUs; skipped where there is none.

Workers do what those of tests/jax do on CPUs, and the same is expected of them.
"""

import functools
import inspect
import os
import pathlib

import pytest

pytest.importorskip("jaxlib", reason="jax is not installed")
from tests import workers  # noqa: E402
from tests.gpu.test_gpu import GPUS, environment, on_gpus  # noqa: E402
from tests.jax import (  # noqa: E402
    test_cross_step,
    test_keras_fit,
    test_keras_without_a_strategy,
    test_push_pull_in_jax,
)

pytestmark = [
    pytest.mark.skipif(not GPUS, reason="this machine has no NVIDIA GPU"),
    pytest.mark.time_limit(600),
]

# Without the second one, Keras has no device for what it keeps on the host.
_ENVIRONMENT = {"JAX_PLATFORMS": "cuda,cpu", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
# On two devices of one process, which a worker on a GPU does not have.
_OF_TWO_DEVICES = ["refusals"]
_SCENARIOS = [name for name in test_push_pull_in_jax.SCENARIOS if name not in _OF_TWO_DEVICES]
_CHECKS = [
    check
    for name, check in vars(test_push_pull_in_jax).items()
    if name.startswith("test_")
    and "group" in inspect.signature(check).parameters
    and name.removeprefix("test_") not in _OF_TWO_DEVICES
]
_FIT_PROGRAM = pathlib.Path(test_keras_fit.__file__).with_name("keras_programs.py")
_BY_OPTIMIZERS = [*test_keras_without_a_strategy.TRAININGS, "moving averages", "eagerly"]
_FITS = ["arrays", "accumulation", "loss_scale", "losses", "own_step", "by_hand", "own_optimizers"]
# Each compiles two programs on each worker.
_ACROSS_STEPS = ["momentum", "noisy", "scaling", "quantized"]
# Else two programs of the same model may multiply matrices in different ways.
_SAME_PRODUCTS = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"


def _run(program, scenarios, hosts, **variables):
    """As `workers.run`, on GPUs. Without hosts: one process without the others."""
    on_gpus(hosts)  # skips if there are too few
    of_rank = functools.partial(_own, hosts=hosts)
    given = {**_ENVIRONMENT, **variables}
    return workers.run(program, scenarios, len(hosts or ""), of_rank=of_rank, **given)


def _own(rank, hosts):
    return environment(f"worker {rank}", hosts)


@pytest.fixture(scope="module", params=["ab", "aa"])
def group(request):
    variables = {"BYTEPS_MIN_COMPRESS_BYTES": "1024"}
    return _run(test_push_pull_in_jax.PROGRAM, _SCENARIOS, request.param, **variables)


@pytest.mark.parametrize("check", _CHECKS, ids=lambda check: check.__name__.removeprefix("test_"))
def test_exchanges(group, check):
    check(group)


@pytest.fixture(scope="module")
def one():
    return _run(_FIT_PROGRAM, _FITS, None, KERAS_BACKEND="jax")


@pytest.fixture(scope="module", params=["ab", "aa"])
def two(request):
    return _run(_FIT_PROGRAM, _FITS, request.param, KERAS_BACKEND="jax")


@pytest.mark.parametrize("name", _FITS)
def test_two_workers_are_as_one_process(one, two, name):
    for result in two[name]:
        test_keras_fit._assert_equal(result, one[name][0])


@pytest.fixture(scope="module", params=["ab", "aa"])
def optimizers(request):
    """Trainings with `tf_byteps.keras.DistributedOptimizer`: in one process, and of two workers."""
    scenarios = [test_keras_without_a_strategy.training(name) for name in _BY_OPTIMIZERS]
    program = test_keras_without_a_strategy.PROGRAM
    return [_run(program, scenarios, hosts, KERAS_BACKEND="jax") for hosts in (None, request.param)]


@pytest.mark.parametrize("name", _BY_OPTIMIZERS)
def test_workers_with_a_distributed_optimizer_are_as_one_process(optimizers, name):
    one, two = optimizers
    scenario = test_keras_without_a_strategy.training(name)
    test_keras_without_a_strategy.assert_as_in_one_process(two[scenario], one[scenario][0])


@pytest.fixture(scope="module")
def across():
    """Trainings with plain steps and across steps, and a lost worker, on two hosts."""
    trainings = [test_cross_step.TRAININGS[name] for name in _ACROSS_STEPS]
    both = [test_cross_step.both("train", **options) for options in trainings]
    scenarios = [*(scenario for pair in both for scenario in pair), "lost"]
    flags = f"{os.environ.get('XLA_FLAGS', '')} {_SAME_PRODUCTS}"
    return _run(test_cross_step.PROGRAM, scenarios, "ab", KERAS_BACKEND="jax", XLA_FLAGS=flags)


@pytest.mark.parametrize("case", _ACROSS_STEPS)
def test_steps_that_overlap_have_the_bits_of_plain_ones(across, case):
    test_cross_step.assert_same_trainings(across, case)


def test_a_worker_lost_between_steps(across):
    test_cross_step.assert_lost_is_one_error(across)
