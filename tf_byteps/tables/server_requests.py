"""What a worker asks of a server that has rows of a table, as bytes: cc/base/table_request.h."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any, NamedTuple

import numpy as np

from tf_byteps import _engine
from tf_byteps.tables.server_rules import RowRule

MAKE, READ, UPDATE, WRITE, STATE, COPY, REFILL, FILL, MARK, RESUME, KEPT, DROP, RELEASE = range(13)
NOT_MADE, WHOLE, LOST, FILLING, FREED = range(5)  # CopyState
LOWEST_PRIORITY = -(2**31)
_MOST_NUMBERS = 5  # that a rule has
FOREVER = 1e8  # an exchange ends by a result or an error of the engine, which has the timeouts


@dataclasses.dataclass(frozen=True)
class Rule:
    """How a server makes and updates the rows of a table.

    Attributes:
        update: how rows are updated.
        distribution: of initial rows: 0 for a constant, 1 for a uniform distribution, 2 for a
            normal one, 3 for a normal one within two standard deviations.
        numbers: of the distribution: the value and 0, the limits, or mean and standard deviation.
        seed: of the initial rows. Worker 0's counts.
    """

    update: RowRule
    distribution: int
    numbers: tuple[float, float]
    seed: int


@dataclasses.dataclass(frozen=True)
class Point:
    """When rows were as servers can make them again.

    Attributes:
        epoch: the membership epoch.
        numbers: of changes, of each block.
    """

    epoch: int
    numbers: tuple[int, ...]

    def of(self, block: int) -> tuple[int, int]:
        """That of a block: a TablePoint of cc/base/table_request.h."""
        return self.epoch, self.numbers[block]


class State(NamedTuple):
    """How far a copy of a block is: the answer to STATE, REFILL, FILL and RELEASE."""

    server: int
    state: int
    made: int
    begun: int
    filled: int
    spec: bytes


def state(answer: bytes) -> State:
    """What a copy has answered."""
    return State(*struct.unpack_from("<iIQQQ", answer), answer[32:])


def spec(
    name: str, shape: tuple[int, int], dtype: np.dtype[Any], block: tuple[int, int], rule: Rule
) -> bytes:
    """A block of a table.

    Args:
        name: of the table.
        shape: of the block.
        dtype: of the rows.
        block: which one, and of how many.
        rule: how rows are made and updated.
    """
    update = rule.update
    numbers = struct.pack(
        "<4I5Q8d",
        int(dtype.itemsize == 8),
        update.kind,
        rule.distribution,
        update.states,
        *(*shape, *block, rule.seed % (1 << 64)),
        *rule.numbers,
        update.first_state,
        *(*update.numbers, *[0.0] * (_MOST_NUMBERS - len(update.numbers))),
    )
    return numbers + name.encode()


def head(kind: int, slot: int, number: int, rows: int, rate: float) -> bytes:
    return struct.pack("<IIQqd", kind, slot, number, rows, rate)


def start(
    request: np.ndarray[Any, Any], table: str, block: int, copy: int, home: int, priority: int
) -> _engine.Handle:
    """Begins to ask a server that has a copy of a block.

    Args:
        request: what it is asked, as bytes.
        table: its name.
        block: which one.
        copy: which one.
        home: the server of the copy.
        priority: of the exchange.
    """
    return _engine.exchange(
        request,
        name=f"table {table}/block {block}/copy {copy}",
        kind="table",
        home=home,
        priority=priority,
    )


def kept(answer: bytes) -> tuple[int, dict[tuple[str, int], set[tuple[int, int]]]]:
    """What a server has kept from earlier epochs: its rank, and the points of blocks.

    Args:
        answer: to KEPT.

    Returns:
        The rank; and of each table's name and block the epochs and numbers of its points.
    """
    found: dict[tuple[str, int], set[tuple[int, int]]] = {}
    (rank,), at = struct.unpack_from("<i", answer), 4
    while at < len(answer):
        block, _, length, points = struct.unpack_from("<4Q", answer, at)
        at += 32 + length
        numbers = struct.unpack_from(f"<{2 * points}Q", answer, at)
        name = answer[at - length : at].decode()
        found[name, block] = set(zip(numbers[::2], numbers[1::2], strict=True))
        at += 16 * points
    return rank, found


def error_of(handle: _engine.Handle) -> _engine.EngineError | None:
    try:
        handle.wait(FOREVER)
    except _engine.EngineError as error:
        return error
    return None


def is_lost(error: Exception) -> bool:
    return getattr(error, "code", "") == "UNAVAILABLE"


def lost(name: str, error: Exception) -> Exception:
    """The error, with what it means for the table."""
    text = (
        f"the table {name!r} has lost rows with its servers: {error}; start the job again, and "
        "load the last checkpoint"
    )
    made = type(error)(text)
    made.code = getattr(error, "code", "")  # pyright: ignore[reportAttributeAccessIssue]
    return made
