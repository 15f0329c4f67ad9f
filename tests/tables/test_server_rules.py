"""Rules by which servers update rows are those of the optimizers."""

import json
import os

import keras
import numpy as np
import pytest

from tests import workers
from tf_byteps.keras import optimizers
from tf_byteps.tables import server_rules

PROGRAM = os.path.join(os.path.dirname(__file__), "server_rules_programs.py")
#: Of on_servers_programs.py.
OPTIMIZERS = (
    "SGD",
    "LazySGD",
    "nesterov",
    "Adagrad",
    "RowWiseAdagrad",
    "LazyAdam",
    "amsgrad",
    "Ftrl",
    "RMSprop",
    "momentum",
    "centered",
    "both",
    "Adadelta",
)
WIDTH = 4
CASES = {
    "SGD": (keras.optimizers.SGD(), ()),
    "Nesterov's SGD without momentum": (optimizers.LazySGD(nesterov=True), ()),
    "momentum": (optimizers.LazySGD(momentum=0.5), (0.5,)),
    "Nesterov": (optimizers.LazySGD(momentum=0.5, nesterov=True), (0.5,)),
    "Keras's Adagrad": (keras.optimizers.Adagrad(epsilon=0.5), (0.5,)),
    "Adagrad": (optimizers.Adagrad(epsilon=0.5), (0.5,)),
    "RowWiseAdagrad": (optimizers.RowWiseAdagrad(epsilon=0.5), (0.5,)),
    "LazyAdam": (optimizers.LazyAdam(0.1, 0.2, 0.3, 0.4), (0.2, 0.3, 0.4)),
    "AMSGrad": (optimizers.LazyAdam(0.1, 0.2, 0.3, 0.4, amsgrad=True), (0.2, 0.3, 0.4)),
    "Ftrl": (
        optimizers.Ftrl(
            learning_rate_power=-0.25,
            l1_regularization_strength=0.1,
            l2_regularization_strength=0.2,
            l2_shrinkage_regularization_strength=0.3,
            beta=0.4,
        ),
        (0.25, 0.1, 0.2, 0.3, 0.4),
    ),
    "RMSprop": (optimizers.RMSprop(rho=0.5, epsilon=0.25), (0.5, 0.25)),
    "RMSprop with momentum": (
        optimizers.RMSprop(rho=0.5, epsilon=0.25, momentum=0.125),
        (0.5, 0.25, 0.125),
    ),
    "centered RMSprop": (optimizers.RMSprop(rho=0.5, epsilon=0.25, centered=True), (0.5, 0.25)),
    "centered RMSprop with momentum": (
        optimizers.RMSprop(rho=0.5, epsilon=0.25, momentum=0.125, centered=True),
        (0.5, 0.25, 0.125),
    ),
    "Adadelta": (optimizers.Adadelta(rho=0.5, epsilon=0.25), (0.5, 0.25)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_rule_has_what_the_optimizer_has(case):
    optimizer, numbers = CASES[case]
    rule = server_rules.of(optimizer, WIDTH, "float32")
    assert rule.numbers == numbers
    optimizer.build([keras.Variable([[0.0] * WIDTH])])
    states = [each for each in optimizer.variables if tuple(each.shape)[:1] == (1,)]
    assert [each.shape[1] for each in states] == [rule.state_width] * rule.states
    first = [float(each.value[0, 0]) for each in states]
    assert first == ([rule.first_state] + [0.0] * (rule.states - 1) if states else [])


def test_each_kind_is_some_optimizers():
    kinds = {server_rules.of(optimizer, WIDTH, "float32").kind for optimizer, _ in CASES.values()}
    assert kinds == set(range(13))  # RowRule::kNumKinds


@pytest.mark.time_limit(420)
def test_servers_update_rows_and_states_as_one_process():
    scenario = f"updated={json.dumps({'names': OPTIMIZERS})}"
    for results in workers.run(PROGRAM, [scenario], 2)[scenario]:
        assert sorted(results) == sorted(OPTIMIZERS)
        for name, (found, expected) in results.items():
            assert len(found) == len(expected)
            for its, values in zip(found, expected, strict=True):
                np.testing.assert_allclose(its, values, rtol=1e-12, atol=1e-14, err_msg=name)
            assert (expected[0] != 1).any()
