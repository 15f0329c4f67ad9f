"""Whether the workers' variables have the same bits: a number for each is compared."""

from collections.abc import Sequence
from typing import Any

from tf_byteps.ops.fingerprints import differing, fingerprints
from tf_byteps.ops.object_gather import gather_objects


def difference(what: str, named_variables: Sequence[tuple[str, Any]]) -> str | None:
    """Compares variables over all workers. A collective.

    Args:
        what: a few words for the exchange's name, equal on all workers.
        named_variables: a list of pairs of a name and a `tf.Variable`, the same on all workers.

    Returns:
        `None`, or a sentence that names the first variable that differs, and where.
    """
    if not named_variables:
        return None
    numbers = fingerprints([variable for _, variable in named_variables])
    found = differing(f"fingerprints of {what}", numbers).nonzero()[0]
    if not len(found):
        return None
    everyone = gather_objects(f"fingerprint of {what}", numbers[found[0]])
    ranks = [str(rank) for rank, number in enumerate(everyone) if number != everyone[0]]
    workers = f"worker {ranks[0]}" if len(ranks) == 1 else f"workers {', '.join(ranks)}"
    others = f", and of {len(found) - 1} more," if len(found) > 1 else ""
    return (
        f"the value of the variable {named_variables[found[0]][0]!r}{others} on {workers} is not "
        "that of worker 0"
    )
