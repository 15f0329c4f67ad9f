"""Whether a `BytePSStrategy` is at work, for what must not load it."""

from typing import Any


def is_ours(strategy: object) -> bool:
    """Whether a strategy is a `BytePSStrategy`; `None` is not."""
    return getattr(getattr(strategy, "extended", None), "is_byteps", False)


def strategy_of(model: Any) -> Any:
    """The `BytePSStrategy` of a Keras model, or `None`."""
    strategy = getattr(model, "distribute_strategy", None)
    return strategy if is_ours(strategy) else None
