"""Whether the workers' variables have the same bits."""

from collections.abc import Sequence
from typing import Any

from tf_byteps.exchange import equality
from tf_byteps.ops.fingerprints import fingerprints


def difference(what: str, named_variables: Sequence[tuple[str, Any]]) -> str | None:
    """Compares variables over all workers. A collective.

    Args:
        what: a few words for the exchange's name, equal on all workers.
        named_variables: a list of pairs of a name and a `tf.Variable`, the same on all workers.

    Returns:
        `None`, or a sentence that names the first variable that differs, and where.
    """
    numbers = fingerprints([variable for _, variable in named_variables])
    return equality.difference(what, [name for name, _ in named_variables], numbers)
