"""What a program says of a table whose rows are given to keys, and how such a table is cut."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

#: What happens when a key needs a row and none is free.
WHEN_FULL = ("error", "evict_oldest", "evict_rarest")
_MOST_BLOCKS, _ROWS_OF_BLOCK = 256, 1024


@dataclasses.dataclass(frozen=True)
class DynamicVocabulary:
    """Gives the rows of a table to keys, which may be any 64-bit integers, when they occur.

    A key has no row until it has occurred often enough in training. It then gets one, with initial
    values that depend on the key and on the initializer's seed only. Until then, and in `evaluate`
    and `predict`, a key without a row gets the table's default row, which begins with zeros and is
    trained like other weights.

    Args:
        min_count: how many times a key must have occurred in the batches of training, counting each
            occurrence, before it gets a row. The batch in which it has is the first with the row.
        expire_after_steps: after so many steps of training without it, a key is forgotten: its row
            may be another key's, and its count begins at 0. `None`: keys do not expire.
        when_full: what happens when a key needs a row, and no row is free: "error", or another key
            loses its row: "evict_oldest", the one not seen for the longest time, or "evict_rarest",
            the one seen least often. The keys of a batch keep their rows in its step.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> layers = tf_byteps.keras.layers
        >>> vocabulary = layers.DynamicVocabulary(min_count=3, expire_after_steps=100_000)
        >>> users = layers.TableConfig(
        ...     "users", 1_000_000, 64, optimizer="adagrad", vocabulary=vocabulary
        ... )
    """

    min_count: int = 1
    expire_after_steps: int | None = None
    when_full: str = "error"

    def __post_init__(self) -> None:
        for what in ("min_count", "expire_after_steps"):
            value = getattr(self, what)
            if value is None and what == "expire_after_steps":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(
                    f"{what} of DynamicVocabulary must be an integer of at least 1, got {value!r}"
                )
        if self.when_full not in WHEN_FULL:
            raise ValueError(
                f"when_full of DynamicVocabulary must be one of {WHEN_FULL}, got {self.when_full!r}"
            )

    def get_config(self) -> dict[str, Any]:
        """The arguments that make an equal vocabulary."""
        return dataclasses.asdict(self)


def cut(rows: int) -> tuple[int, int]:
    """How a table is cut into blocks. A key belongs to one of them, whatever has a row already.

    So what happens to a key depends on the keys of its block only, and not on how many workers
    share the blocks. A key's block is random: blocks have four standard deviations more rows than
    their mean, so that as many keys fit into a table as it is said to have rows.

    Args:
        rows: of the table, at least 1.

    Returns:
        The number of blocks, and the rows of each.
    """
    blocks = min(_MOST_BLOCKS, max(1, rows // _ROWS_OF_BLOCK))
    if blocks == 1:
        return 1, rows
    mean = rows / blocks
    return blocks, math.ceil(mean + 4 * math.sqrt(mean))
