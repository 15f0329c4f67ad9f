"""In which order parts leave a worker whose credit is short."""

import numpy as np
import pytest

import tf_byteps
from tests.cluster import run_workers
from tf_byteps import _engine, timeline
from tf_byteps.exchange.arguments import FORWARD_ORDER

PART_BYTES = 1 << 20
PARTS = 8
STEPS = 10
SECONDS = 40
# Credit of one part: all but the first wait in the worker's queue.
ENV = {"BYTEPS_PARTITION_BYTES": str(PART_BYTES), "BYTEPS_CREDIT_BYTES": str(PART_BYTES)}


def orders_of_pushes(path, priority):
    """For each step the tensors of its parts, in the order in which they were pushed."""
    tf_byteps.init()
    arrays = {name: np.ones(PARTS * PART_BYTES // 4, np.float32) for name in ("last", "first")}
    for step in range(STEPS + 1):
        if step == 1:
            tf_byteps.start_timeline(path)
        # As backpropagation has them: the gradient of the first layer comes last.
        handles = [_engine.exchange(a, name=n, priority=priority) for n, a in arrays.items()]
        for handle in handles:
            handle.wait(SECONDS)
    parts = sorted(timeline.read(tf_byteps.stop_timeline()), key=lambda part: part.pushed)
    return [[p.tensor for p in parts if p.round == step + 1] for step in range(STEPS)]


def test_what_the_next_step_needs_first_overtakes(tmp_path):
    for orders in run_workers(orders_of_pushes, env=ENV, args=(str(tmp_path), FORWARD_ORDER)):
        # Not in every step: a worker may be held up between its two calls.
        assert any(order[-1] == "last" and order[-PARTS:].count("last") > 1 for order in orders)
        assert all(sorted(order) == ["first"] * PARTS + ["last"] * PARTS for order in orders)


@pytest.mark.parametrize("priority", [None, 0])
def test_else_parts_leave_in_the_order_of_the_calls(tmp_path, priority):
    for orders in run_workers(orders_of_pushes, env=ENV, args=(str(tmp_path), priority)):
        assert orders == [["last"] * PARTS + ["first"] * PARTS] * STEPS
