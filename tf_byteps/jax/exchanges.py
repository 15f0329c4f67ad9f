"""What the exchanges of one operation of JAX are."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from tf_byteps.jax import custom_calls


@dataclasses.dataclass(frozen=True)
class Exchanges:
    """What the exchanges of one primitive are.

    Attributes:
        names: of the exchanges.
        is_derived: whether the names come from the place of the call: further uses in a program
            are numbered.
        kind: "sum", "min", "max", "product", "broadcast" or "gather", of all.
        average: whether the sum is divided by the number of workers.
        root_rank: whose value a broadcast sends.
        codecs: in which the engine sends each; "": as it is.
        priorities: of each.
        gradient: "average" or "sum": how the workers' gradients of a broadcast or gather are
            combined.
        backup_workers: how many workers an average need not wait for.
    """

    names: tuple[str, ...]
    is_derived: bool
    kind: str
    codecs: tuple[str, ...]
    priorities: tuple[int, ...]
    average: bool = False
    root_rank: int = 0
    gradient: str = "average"
    backup_workers: int = 0

    def some(self, places: Sequence[int]) -> "Exchanges":
        """Some of these."""
        return dataclasses.replace(
            self,
            names=tuple(self.names[i] for i in places),
            codecs=tuple(self.codecs[i] for i in places),
            priorities=tuple(self.priorities[i] for i in places),
        )

    def of(self, places: Sequence[int], ending: str, without: str = "") -> "Exchanges":
        """Further exchanges for some of these."""
        return dataclasses.replace(
            self.some(places),
            names=tuple(self.names[i].removesuffix(without) + ending for i in places),
            codecs=tuple("" for _ in places),
        )

    def reduction(self) -> "Exchanges":
        """How the workers' gradients are combined."""
        if self.kind == "sum":
            return self
        return dataclasses.replace(
            self, kind="sum", average=self.gradient == "average", root_rank=0
        )

    def attributes(self, names: Sequence[str], places: Sequence[int]) -> dict[str, Any]:
        return custom_calls.attributes(
            [names[i] for i in places],
            [self.codecs[i] for i in places],
            [self.priorities[i] for i in places],
            self.kind,
            self.average,
            self.root_rank,
            self.backup_workers,
        )
