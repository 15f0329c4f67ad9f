"""The ids of batches, which workers and the benchmark draw alike."""

import functools

import numpy as np

# The rows of a table, its columns, the ids of a batch, and the exponent of Zipf's law for them.
DRAWS = {
    "films": (1_682, 64, 256, 0.6),
    "words": (30_522, 1_024, 8_192, 1.0),
    "clicks": (1_000_000, 16, 53_248, 1.05),
}


@functools.cache
def _shares(rows, exponent):
    shares = 1 / np.arange(1, rows + 1) ** exponent
    places = np.random.default_rng(1).permutation(rows)  # frequent ids are not neighbours
    return np.cumsum(shares[np.argsort(places)] / shares.sum())


def ids_of(draw, rank, turn):
    """The ids of a worker's batch; all processes draw the same.

    Args:
        draw: one of `DRAWS`.
        rank: the worker's.
        turn: which batch.

    Returns:
        An int64 array.
    """
    rows, _, lookups, exponent = DRAWS[draw]
    chances = np.random.default_rng([rank, turn]).random(lookups)
    return np.minimum(np.searchsorted(_shares(rows, exponent), chances), rows - 1)
