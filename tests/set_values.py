"""What `tf_byteps.keras` exchanges of values within process sets, whatever Keras runs on."""

import numpy as np

from tf_byteps import keras as bps


def of(sets):
    """By the ranks of each of the sets that this worker is in."""
    mine = np.array([[1.0 + bps.rank()], [10.0]])
    return {
        each.ranks: [
            found.tolist()
            for found in (
                bps.push_pull(mine, process_set=each),
                bps.push_pull(mine, op="sum", name="same name", process_set=each),
                bps.allgather(mine[: 1 + bps.rank() % 2], process_set=each),
                bps.reducescatter(mine, op="sum", process_set=each),
                bps.broadcast(mine, each.ranks[-1], process_set=each),
            )
        ]
        for each in sets
    } | {"all": bps.push_pull(mine, op="sum", name="same name").tolist()}


def check(rank, found, sets):
    """Compares what `of` has returned on a worker with what the sets' workers have given."""
    its = [ranks for ranks in sets if rank in ranks]
    assert set(found) == {*its, "all"}
    assert found["all"] == [[6.0], [30.0]]
    for ranks in its:
        firsts, number = [1.0 + each for each in ranks], len(ranks)
        gathered = [row for each in ranks for row in [[1.0 + each], [10.0]][: 1 + each % 2]]
        total = [[sum(firsts)], [10.0 * number]]
        rows = total[ranks.index(rank) :][:1] if number == 2 else total
        assert found[ranks] == [
            [[sum(firsts) / number], [10.0]],
            total,
            gathered,
            rows,
            [[firsts[-1]], [10.0]],
        ]
