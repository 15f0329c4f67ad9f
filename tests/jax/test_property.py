"""The trainings of tests/property, with the same tolerances, on JAX.

The first twenty seeds train on two workers, the others on three. Training steps of one's own are
written for JAX. `merge_repeated_rows=False`, which some seeds ask for on TensorFlow, is refused.
"""

import importlib
import os

import pytest

from tests.cluster import run_workers
from tests.foreign import on_jax, running as programs
from tests.jax import choosing
from tests.property import cases, comparing, running, steps

pytest.importorskip("jax", reason="Keras on JAX needs jax")

_SEEDS = range(int(os.environ.get("PROPERTY_SEEDS", "28")))
_QUICK_SEEDS = (1,)  # in `make test`
_QUICK_STEPS = (1,)


def _parameters(quick):
    return [pytest.param(n, marks=() if n in quick else pytest.mark.long) for n in _SEEDS]


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    def is_compiled(seed):
        return False  # by `gpu_in_sight`: on JAX Keras compiles everywhere

    return comparing.results_of(
        request, test_seed, tmp_path_factory, running.run_seeds, is_compiled, choosing.IN_FLOAT64
    )


@pytest.mark.time_limit(2 * comparing.GROUP_SECONDS)
@pytest.mark.parametrize("seed", _parameters(_QUICK_SEEDS))
def test_seed(results, seed):
    comparing.check(cases.draw(seed), results(seed))


@pytest.fixture(scope="module")
def step_results(request, tmp_path_factory):
    return comparing.results_of(
        request, test_step, tmp_path_factory, running.run_steps, _mode, choosing.IN_FLOAT64
    )


def _mode(seed):
    return "eager" if seed % 7 == 6 else "compiled"


@pytest.mark.time_limit(2 * comparing.GROUP_SECONDS)
@pytest.mark.parametrize("seed", _parameters(_QUICK_STEPS))
def test_step(step_results, seed):
    """Steps that do something with their gradients."""
    comparing.check(steps.draw(seed), step_results(seed))


def test_the_same_is_drawn_as_on_tensorflow():
    on_jax, on_tensorflow = (
        importlib.import_module(f"tests.property.drawn_steps_of_{name}")
        for name in ("jax", "tensorflow")
    )
    for table in ("LOSSES", "PROCESSING", "UPDATES"):
        assert list(getattr(on_jax, table)) == list(getattr(on_tensorflow, table))


@pytest.mark.long
def test_what_counts_each_occurrence_is_refused():
    """Seeds and whole programs, all by one sentence."""
    asking = [cases.draw(seed).strategy for seed in range(200)]
    asking += [programs.all_programs()[name].strategy for name in on_jax.REFUSED]
    asking = [options for options in asking if options]
    assert len(asking) > len(on_jax.REFUSED)
    (sentences,) = run_workers(
        running.refusals,
        workers=1,
        timeout=comparing.GROUP_SECONDS,
        env=choosing.IN_FLOAT64,
        args=(asking,),
    )
    assert len(sentences) == len(asking)
    for sentence in sentences:
        assert "merge_repeated_rows is False, which BytePSStrategy does not support" in sentence
