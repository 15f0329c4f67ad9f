"""Settings of a training that all workers must have alike."""

import logging
from typing import Any

import keras

from tf_byteps import runtime
from tf_byteps.errors import on_all_workers
from tf_byteps.strategy.fit import framework

_logger = logging.getLogger("tf_byteps")


def check_equal(everyone: list[dict[str, Any]]) -> None:
    """Refuses trainings that would not come to the same exchanges.

    Callbacks that exchange say by an attribute `collective` what must agree.

    Args:
        everyone: what `callbacks.completed` has gathered, by rank.

    Raises:
        ValueError: on all workers.
    """
    first = everyone[0]
    for rank, other in enumerate(everyone):
        if other["epochs"] != first["epochs"]:
            raise on_all_workers(
                ValueError(
                    f"worker 0 calls fit with epochs={first['epochs']}, worker {rank} with "
                    f"epochs={other['epochs']}: all workers must train for the same epochs"
                )
            )
        if other["collective"] != first["collective"]:
            raise on_all_workers(
                ValueError(
                    f"worker 0 has the callbacks {first['collective']}, worker {rank} has "
                    f"{other['collective']}: all workers need the same ones, as they exchange"
                )
            )


def learning_rate(model: keras.Model) -> list[float] | None:
    """The steps of the model's optimizer, and its rate.

    Returns:
        Two numbers; `None` if the rate is a schedule, or the optimizer is not Keras's.
    """
    optimizer = getattr(model, "optimizer", None)
    rate = getattr(optimizer, "_learning_rate", None)
    if optimizer is None or not isinstance(rate, keras.Variable):
        return None
    if framework.current().is_foreign(optimizer):
        return None
    return [float(optimizer.iterations), float(rate)]


def compare_learning_rates(everyones: list[list[float] | None]) -> None:
    """Warns of a rate that worker 0's replaces. A worker that has come later has made no steps.

    Args:
        everyones: what `learning_rate` has returned, by rank.
    """
    first = everyones[0]
    for rank, other in enumerate(everyones):
        if runtime.rank() == 0 and first and other and first[0] == other[0] and first != other:
            _logger.warning(
                "the learning rate is %g on worker 0 and %g on worker %d: worker 0's is used",
                first[1],
                other[1],
                rank,
            )
            return
