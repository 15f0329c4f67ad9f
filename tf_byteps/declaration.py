"""How the engine learns of a tensor before its first exchange."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Declaration:
    """A tensor and the kind of its exchanges. `_engine.declare` reads the fields by name.

    Attributes:
        name: of the exchanges.
        dtype: the name of the element type of what is sent, as "float32".
        shape: of what is sent.
        kind: "sum", "min", "max", "product", "broadcast", "gather" or "alltoall".
        average: whether the sum is divided by the number of workers.
        root_rank: whose tensor a broadcast sends.
        backup_workers: how many workers a sum or an average need not wait for.
        codec: in which the engine sends the tensor; "": as it is.
        grace_ms: how long a sum that could end without some workers waits for them, in
            milliseconds; -1: as their spread suggests; -2: it has no such rounds.
    """

    name: str
    dtype: str
    shape: Sequence[int]
    kind: str = "sum"
    average: bool = False
    root_rank: int = 0
    backup_workers: int = 0
    codec: str = ""
    grace_ms: int = -2
