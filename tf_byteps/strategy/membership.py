"""What a new membership epoch of an elastic job means for TensorFlow's strategies."""

from collections.abc import Sequence

from tf_byteps.strategy.input import shuffle


def generation() -> int:
    """How often datasets were distributed: see `shuffle`."""
    return shuffle.generation()


def begin_epoch(addresses: Sequence[str], generation: int, is_first: bool) -> None:
    """Makes strategies that were there before agree with those of new workers.

    Args:
        addresses: of all workers, in rank order.
        generation: the highest of all workers.
        is_first: whether no worker has trained before. If not, initial values are what an elastic
            state gives, and nothing else.
    """
    shuffle.set_generation(generation)
    for strategy in shuffle.strategies():
        strategy.extended.begin_epoch(addresses, is_first)
