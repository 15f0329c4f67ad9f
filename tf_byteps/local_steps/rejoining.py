"""How the rounds of a quorum go on when the workers of an elastic job have changed.

Nobody goes back. Each worker keeps what it has trained since its last change was in a round, and
all go on from the newest global weights that one of them has. A worker that has sent its change to
a round whose result it lacks looks at whether another one has that result: a round ends with the
changes of all of its members, so that its own is in it then. If nobody has it, the round has never
been.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.exchange import host
from tf_byteps.exchange.object_gather import gather_objects

_NOTHING_YET = -1


@dataclasses.dataclass(frozen=True)
class Sent:
    """What a worker has sent to a round in which it is.

    Attributes:
        rows: of its own steps.
        carried: the changes of earlier rounds to which it came late, each times its rows.
        carried_rows: of these.
    """

    rows: int
    carried: list[tf.Tensor]
    carried_rows: int


def newest(rounds: Sequence[tuple[int, int]], is_new: bool) -> list[tuple[int, int, int]]:
    """Who has the newest weights of each fragment. A collective.

    Args:
        rounds: of each fragment, how many have ended here, and how many rows they had.
        is_new: whether this worker has just begun, and has no weights of this training.

    Returns:
        Of each fragment: a rank, the rounds that have ended there, and their rows.
    """
    mine = [(_NOTHING_YET, 0) if is_new else each for each in rounds]
    everyone = gather_objects("outer/newest", mine) if runtime.size() > 1 else [mine]
    found = []
    for of_workers in zip(*everyone, strict=True):
        count, rows = max(map(tuple, of_workers))
        found.append(([tuple(each) for each in of_workers].index((count, rows)), count, rows))
    return found


def take(names: Sequence[str], values: Sequence[Any], root_rank: int) -> list[np.ndarray]:
    """The newest weights and momenta. A collective.

    Args:
        names: of the exchanges.
        values: this worker's, tensors or variables.
        root_rank: the worker whose values count.
    """
    arrays = [np.asarray(each) for each in values]
    if runtime.size() == 1:
        return arrays
    return host.copy_all(arrays, names, "broadcast", root_rank)
