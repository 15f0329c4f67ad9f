"""Workers and servers of trainings on JAX are killed; see `python -m tests.faults.jax_kills`."""

import pytest

from tests.faults import jax_kills

pytest.importorskip("jax", reason="Keras on JAX needs jax")


@pytest.mark.long
@pytest.mark.time_limit(600)
@pytest.mark.parametrize("how", ["loop", "fit"])
def test_nothing_is_lost_with_servers(how):
    assert jax_kills.servers(how, 2, seed=1) == []


@pytest.mark.long
@pytest.mark.time_limit(600)
@pytest.mark.parametrize("how", ["loop", "fit"])
def test_who_is_lost_is_said(how):
    assert jax_kills.errors(how, 2, seed=1) == []


@pytest.mark.long
@pytest.mark.time_limit(600)
@pytest.mark.parametrize("how", ["loop", "fit"])
def test_a_worker_that_was_stopped_learns_that_it_is_lost(how):
    assert jax_kills.errors(how, 2, seed=1, stops=True) == []
