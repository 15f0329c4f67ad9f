"""What the modules that give XLA an order of exchanges have in common, in whatever framework.

XLA knows no order but that of data: they give operations other inputs.
"""

import heapq
import sys
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

_Node = TypeVar("_Node", bound=Hashable)

#: Variables with fewer elements share the order of the larger ones: there are many of them.
LEAST_ELEMENTS = 2**18
MEGABYTE = 1 << 20  # see BytesOfAStart of cc/tf/xla_kernels.cc


def with_smaller(large: Sequence[int], smaller: Sequence[int]) -> dict[int, list[int]]:
    """The numbers of the gradients that start together, by the number of the large one.

    XLA would compute biases and the like after all others, and each alone. Those of a layer come
    with the large gradient that backpropagation computes next: of the layer before.

    Args:
        large: the numbers of gradients that have a start of their own.
        smaller: the numbers of the others that may start.
    """
    forward = sorted(large)
    ends = forward[1:] + [sys.maxsize] * 2
    return {
        number: [number, *(i for i in smaller if ends[k] < i < ends[k + 1])]
        for k, number in enumerate(forward)
    }


def neighbors(sizes: Sequence[int], limit: int = MEGABYTE) -> list[list[int]]:
    """The places of tensors that one call starts: neighbors, of so many bytes together.

    Args:
        sizes: of each, in bytes.
        limit: of one call, in bytes. A longer tensor is started alone.
    """
    groups: list[list[int]] = []
    room = -1
    for place, size in enumerate(sizes):
        if size > room:
            groups.append([])
            room = max(limit, size)
        room -= size
        groups[-1].append(place)
    return groups


def in_order(before_of: Mapping[_Node, set[_Node]]) -> list[_Node]:
    """Operations, each after those that must come before it, else as they are given.

    Args:
        before_of: of each operation, those that come before it. It has all of them.

    Returns:
        The list of operations. Those that wait for each other, and those that wait for these, are
        not in it.
    """
    nodes = list(before_of)
    rank_of = {node: rank for rank, node in enumerate(nodes)}
    users: list[list[int]] = [[] for _ in nodes]
    missing = []
    for rank, before in enumerate(before_of.values()):
        missing.append(len(before))
        for other in before:
            users[rank_of[other]].append(rank)
    ready = [rank for rank, count in enumerate(missing) if not count]
    order = []
    while ready:
        rank = heapq.heappop(ready)
        order.append(nodes[rank])
        for user in users[rank]:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, user)
    return order


def is_cyclic(before_of: Mapping[_Node, set[_Node]]) -> bool:
    """Whether some operations wait for each other; see `in_order`."""
    return len(in_order(before_of)) < len(before_of)
