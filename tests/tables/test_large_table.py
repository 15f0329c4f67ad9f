"""A table of 4 GB on two servers, with workers of 1 GB (protocol rules 38 and 39).

Each server is killed once and started again, and the weights are those of an undisturbed training.
TESTS_TABLE_ROWS makes the table smaller, for machines with less memory: the two servers need 9 GB
for the whole one. TESTS_TABLE_TRAINED trains fewer of the rows, which takes less time.
"""

import hashlib
import os
import pathlib
import time

import psutil
import pytest

from tests.cluster import Cluster, describe, wait_until
from tests.tables.test_lost_servers import await_copies, replace

pytestmark = [pytest.mark.slow, pytest.mark.time_limit(3600)]

ROWS = int(os.environ.get("TESTS_TABLE_ROWS", "16000000"))
TRAINED = int(os.environ.get("TESTS_TABLE_TRAINED", str(ROWS)))
WIDTH, INDICES, BATCH = 64, 8, 8_192
STAGES = 4  # of the training; each is about other rows
LIMIT = 1 << 30  # bytes of memory that a worker may write to
TABLE_BYTES = ROWS * (WIDTH + 1) * 4


def _stage(number):
    """Indices and targets of a stage, the same on all workers."""
    import numpy as np

    begin, end = TRAINED * number // STAGES, TRAINED * (number + 1) // STAGES
    order = np.random.default_rng(number).permutation(end - begin) + begin
    indices = order[: len(order) // INDICES * INDICES].reshape(-1, INDICES)
    indices = indices * ROWS // TRAINED
    return indices, (indices % 2).mean(axis=1, keepdims=True).astype("float32")


def _train(folder):
    """Trains, and waits after each stage to be told to go on.

    Returns:
        Worker 0: a digest of all rows. All: the most memory, in MB, after the first stage and at
        the end, and losses.
    """
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    import keras
    import numpy as np

    import tf_byteps
    from tf_byteps.keras import layers, optimizers
    from tf_byteps.tables import layout

    tf_byteps.init()
    keras.utils.set_random_seed(3)
    peaks, losses = [], []
    with tf_byteps.BytePSStrategy().scope():
        adagrad = optimizers.RowWiseAdagrad(0.5)
        table = layers.TableConfig("items", ROWS, WIDTH, optimizer=adagrad, placement="servers")
        layer = layers.DistributedEmbedding(layers.FeatureConfig("items", table))
        inputs = keras.Input([INDICES], dtype="int64", name="items")
        model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(layer(inputs)))
        model.compile(keras.optimizers.SGD(0.01), "mse")
        for stage in range(STAGES):
            x, y = _stage(stage)
            losses += model.fit(x, y, batch_size=BATCH, verbose=0, shuffle=False).history["loss"]
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
            pathlib.Path(folder, f"trained_{stage}_{tf_byteps.rank()}").touch()
            wait_until(pathlib.Path(folder, f"go_on_{stage}").exists, 1200)
        digest = hashlib.sha256()
        if tf_byteps.rank() == 0:
            rows = layout.of(layer.trainable_variables[0]).table
            for begin in range(0, ROWS, 100_000):
                digest.update(rows.read(np.arange(begin, min(begin + 100_000, ROWS))).tobytes())
    return digest.hexdigest(), [peaks[0], peaks[-1]], losses


def _run(folder, kills):
    with Cluster(_train, 2, 2, {"BYTEPS_DETERMINISTIC": "1"}, [str(folder)]) as cluster:
        for stage in range(STAGES):
            wait_until(
                lambda stage=stage: (
                    all((folder / f"trained_{stage}_{rank}").exists() for rank in range(2))
                    or any(worker.popen.poll() is not None for worker in cluster.workers)
                ),
                1500,
            )
            if kills and stage % 2 == 0:
                replace(cluster, stage // 2)
            elif kills:
                await_copies(cluster, stage // 2 + 1, 1, 1500)
            (folder / f"go_on_{stage}").touch()
        cluster.wait_for(cluster.workers, 1500)
        outcomes = [process.outcome() for process in cluster.processes()]
    results = [each.result for each in outcomes if each.label.startswith("worker")]
    assert all(results), describe(outcomes)
    return results, describe(outcomes)


def test_each_server_of_a_table_of_4_gb_is_lost_once(tmp_path):
    needed, free = 2 * TABLE_BYTES + (3 << 30), psutil.virtual_memory().available
    if free < needed:
        pytest.skip(f"needs {needed >> 20} MB of free memory, and {free >> 20} MB are")
    folders = [tmp_path / name for name in ("undisturbed", "killed")]
    for folder in folders:
        folder.mkdir()
    begin = time.monotonic()
    expected, _ = _run(folders[0], kills=False)
    between = time.monotonic()
    results, output = _run(folders[1], kills=True)
    print(f"a table of {TABLE_BYTES / 1e9:.2f} GB, of which {TRAINED / ROWS:.0%} are trained")
    print(f"undisturbed, {between - begin:.0f} s: {expected}")
    print(f"each server killed, {time.monotonic() - between:.0f} s: {results}")
    print(*[line for line in output.splitlines() if "of the table" in line], sep="\n")
    assert [each[0] for each in results] == [each[0] for each in expected], output
    assert [each[2] for each in results] == [each[2] for each in expected]
    for _, (before, after), _ in [*expected, *results]:
        # MB: measured up to 112 at worker 0, which copies, and 58 at others, which push again.
        assert after < before + 160
