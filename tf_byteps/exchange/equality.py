"""Whether the workers have the same: a number for each thing is compared."""

from collections.abc import Sequence

import numpy as np

from tf_byteps.exchange import host
from tf_byteps.exchange.names import in_scope
from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.exchange.process_sets import ProcessSet, scope_of


def differing(name: str, numbers: Sequence[int]) -> np.ndarray:
    """Which of the workers' numbers are not the same on all of them. A collective.

    Its size does not grow with the number of workers.

    Args:
        name: the exchange's name, equal on all workers.
        numbers: a list of 64-bit integers, of the same length on all workers.

    Returns:
        A NumPy array of booleans.
    """
    own = np.asarray(numbers, np.int64)
    both = np.concatenate([own, ~own])  # the largest ~number is that of the smallest
    (largest,) = host.exchange_all([both], [name], kind="max")
    return largest[: len(own)] != ~largest[len(own) :]


def difference(
    what: str, names: Sequence[str], numbers: Sequence[int], process_set: ProcessSet | None = None
) -> str | None:
    """Compares variables over all workers by their fingerprints. A collective.

    Args:
        what: a few words for the exchange's name, equal on all workers.
        names: of the variables, the same on all workers.
        numbers: 64-bit integers, of which variables of other values have others.
        process_set: the workers that compare them; `None`: all.

    Returns:
        `None`, or a sentence that names the first variable that differs, and where.
    """
    if not numbers:
        return None
    workers = scope_of(process_set)
    found = differing(in_scope(workers, f"fingerprints of {what}"), numbers).nonzero()[0]
    if not len(found):
        return None
    everyone = gather_objects(in_scope(workers, f"fingerprint of {what}"), numbers[found[0]])
    members = range(len(everyone)) if process_set is None else process_set.ranks
    ranks = [str(r) for r, number in zip(members, everyone) if number != everyone[0]]
    where = f"worker {ranks[0]}" if len(ranks) == 1 else f"workers {', '.join(ranks)}"
    others = f", and of {len(found) - 1} more," if len(found) > 1 else ""
    return (
        f"the value of the variable {names[found[0]]!r}{others} on {where} is not that of "
        f"worker {members[0]}"
    )
