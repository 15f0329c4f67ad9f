"""`tf.data.Dataset.cache(file)` and `snapshot(path)`, of which each worker has one of its own.

Every worker runs the whole pipeline, so that all would write the file that the program names, and
TensorFlow allows one writer. A worker that did without would see another order of the rows than the
others, if what is cached was shuffled. So each caches to `file.worker-1-of-2`; if all workers find
the file itself complete, from an earlier run of one process, they read that.

A job writes one copy for each worker. It is found again when the job is started again with as many.

A snapshot has no lock. TensorFlow reads which run wrote it, and then reads that again: if another
worker begins to write in between, the snapshot seems to be empty. TensorFlow does not tell which
folder of a path belongs to a pipeline, so a complete snapshot at the path itself is not read.
"""

import pathlib
from typing import Any

import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.errors import on_all_workers
from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.private.tensorflow import dataset_ops, gen_experimental_dataset_ops
from tf_byteps.strategy.input import content
from tf_byteps.strategy.saving import turns

_used = set()  # files of this worker's that this process has begun to use


def files(dataset: tf.data.Dataset) -> list[str]:
    """The files and folders that a pipeline caches to, as its program names them."""
    stages = content.stages(dataset)
    caches = [stage._filename for stage in stages if type(stage).__name__ == "CacheDataset"]
    return _names([*caches, *_snapshots(dataset)])


def _snapshots(dataset: tf.data.Dataset) -> list[Any]:
    stages = content.stages(dataset)
    return [stage._path for stage in stages if type(stage).__name__ == "_SnapshotDataset"]


def _names(paths: list[Any]) -> list[str]:
    """Those that are known while the pipeline is built, and on this host."""
    known = [getattr(path, "numpy", lambda path=path: path)() for path in paths]
    names = {tf.compat.as_str(path) for path in known if isinstance(path, (str, bytes))}
    return sorted(name for name in names if name and "://" not in name)


def with_own_files(dataset: tf.data.Dataset, name: str, is_whole: bool = True) -> Any:
    """The same dataset, with caches in files of this worker's. A collective.

    A file that no other worker names stays as it is: the program has given each its own.

    Args:
        dataset: a `tf.data.Dataset`.
        name: of the exchange, the same on all workers.
        is_whole: whether all workers have the same data. Otherwise a complete file that all of
            them name is not read: it cannot be the cache of each.

    Returns:
        A `tf.data.Dataset`.

    Raises:
        ValueError: the pipeline cannot be changed, or another process uses a file of this worker's.
    """
    own = {file: f"{file}.worker-{runtime.rank()}-of-{runtime.size()}" for file in files(dataset)}
    snapshots = _names(_snapshots(dataset))
    complete = {file: [_is_complete(file), _is_complete(own[file])] for file in own}
    complete.update((file, [False, True]) for file in snapshots)  # which TensorFlow looks after
    everyone = gather_objects(f"{name}/caches", complete)
    replaced = {}
    for file in own:
        users = [each[file] for each in everyone if file in each]
        if len(users) == 1 or (is_whole and all(is_complete for is_complete, _ in users)):
            continue
        replaced[file] = own[file]
        if own[file] not in _used:
            _begin(own[file], all(is_complete for _, is_complete in users))
    return _rewritten(dataset, replaced) if replaced else dataset


def _is_complete(file: str) -> bool:
    return pathlib.Path(f"{file}.index").exists()


def _begin(own: str, is_complete: bool) -> None:
    """Removes what a run has left that did not get to the end on all workers."""
    _used.add(own)
    with turns.turn(own) as mine:
        if not mine.give_up():
            raise ValueError(
                f"another process of this host uses the cache {own!r}: wait until its job has "
                "ended, or give each job a file name of its own in Dataset.cache or snapshot"
            )
        mine.keep()
    if not is_complete:
        path = pathlib.Path(own)
        for left in path.parent.glob("*"):
            if left.name.startswith((f"{path.name}.", f"{path.name}_")):
                left.unlink(missing_ok=True)


def _rewritten(dataset: tf.data.Dataset, replaced: dict[str, str]) -> Any:
    """A dataset with other file names: TensorFlow makes it of the first one's graph."""
    try:
        serialized = dataset._as_serialized_graph(
            external_state_policy=tf.data.experimental.ExternalStatePolicy.IGNORE
        )
        graph = tf.compat.v1.GraphDef.FromString(serialized.numpy())
        _replace(graph, replaced)
        variant = gen_experimental_dataset_ops.dataset_from_graph(graph.SerializeToString())
    except tf.errors.OpError as error:
        raise on_all_workers(
            ValueError(
                f"the workers cannot all write the cache {next(iter(replaced))!r}, and TensorFlow "
                "cannot copy this pipeline to give each a file of its own: call Dataset.cache "
                "without a file name, or Dataset.save in one process and Dataset.load in all "
                f"({error.message})"
            )
        ) from error
    result: Any = dataset_ops.from_variant(variant, dataset.element_spec)
    result._byteps_original = dataset  # Python functions live as long as it does
    return result.with_options(dataset.options())


def _replace(graph: Any, replaced: dict[str, str]) -> None:
    nodes = {node.name: node for node in graph.node}
    for node in graph.node:
        if node.op in ("CacheDataset", "CacheDatasetV2", "SnapshotDatasetV2"):
            file = nodes[node.input[1]].attr["value"].tensor
            name = tf.compat.as_str(file.string_val[0])
            file.string_val[0] = tf.compat.as_bytes(replaced.get(name, name))
