"""The choice of PowerSGD. `tf_byteps.ops.compression.low_rank` has what is done then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tf_byteps.exchange.compressor import Compressor

if TYPE_CHECKING:
    import tensorflow as tf


class PowerSGDCompressor(Compressor):
    """Sends the gradient of each matrix as two narrow matrices, P and Q, whose product is close to
    its average. The error is added to the next gradient: error feedback. All axes but the last one
    become rows. Tensors with fewer than two axes, tensors that would not become shorter, and rows
    of `tf.IndexedSlices` are sent as they are.

    Q waits for P, so a gradient needs two round trips. It does not work with `backup_workers`.
    Weights stay equal only if all workers have the same kind of CPU or GPU: each makes P
    orthonormal itself.

    Args:
        rank: how many columns P and Q have.

    Raises:
        ValueError: it is not a whole number above 0.

    Example:

    >>> compression = tf_byteps.Compression.powersgd(rank=4)
    >>> optimizer = tf_byteps.DistributedOptimizer(optimizer, compression=compression)
    """

    name = "powersgd"

    def __init__(self, rank: int = 2) -> None:
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
            raise ValueError(
                f"compression 'powersgd': rank is {rank!r}, must be a whole number above 0"
            )
        self.rank = rank

    @classmethod
    def of_name(cls, name: str) -> PowerSGDCompressor:
        """That of `"powersgd:rank=4"`. Raises ValueError."""
        option, _, value = name.partition(":")[2].partition("=")
        if option != "rank":
            raise ValueError(f"compression {name!r}: unknown option {option!r}; known: rank")
        return cls(int(value) if value.isdecimal() else value)  # pyright: ignore[reportArgumentType]

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: tf.Tensor, context: Any) -> tf.Tensor:
        return tensor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerSGDCompressor) and other.rank == self.rank

    def __hash__(self) -> int:
        return hash((PowerSGDCompressor, self.rank))

    def __repr__(self) -> str:
        return f"<PowerSGDCompressor rank={self.rank}>"
