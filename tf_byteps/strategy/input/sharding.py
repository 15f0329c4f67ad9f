"""Which rows of a dataset are this worker's.

`tf.distribute` would rewrite and restart the input pipeline on each worker. Here every worker runs
the pipeline of the global batches and cuts its own piece out of each: the batches are exactly those
of a single process, shuffles keep their order from epoch to epoch, and tables and generators used
by the pipeline go on working. All workers then also see the same number of steps, even if some
pieces of the last batch are empty.
"""

import logging
from collections.abc import Callable
from typing import Any, cast

import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.errors import on_all_workers
from tf_byteps.exchange.content import same
from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.local_steps.settings import LocalSteps
from tf_byteps.ops import names
from tf_byteps.private.tensorflow import data_distribute
from tf_byteps.strategy.input import building, caches, content, lengths, pieces, shuffle, together
from tf_byteps.strategy.input.datasets import BytePSDataset

_logger = logging.getLogger("tf_byteps")
_AutoShardPolicy = tf.data.experimental.AutoShardPolicy
_UNKNOWN = int(tf.data.experimental.UNKNOWN_CARDINALITY)
_EARLIER_USES = "earlier uses of a dataset that shuffles anew each time"
_CONTENT = "content"
_ADVICE = (
    "Give all workers the same data in the same order, of which each trains on its part: call "
    "keras.utils.set_random_seed with the same number on all of them before data are made, "
    "shuffled or split. For data that are each worker's own, pass a tf.data.Dataset with "
    "AutoShardPolicy.OFF"
)
# What else to do about a difference.
_OTHER_ADVICE = {
    _EARLIER_USES: "Make the dataset inside of the function that tf_byteps.elastic.run runs: a new "
    "worker's begins with its first order"
}


def distribute(dataset: tf.data.Dataset, strategy: tf.distribute.Strategy) -> Any:
    """This worker's share of a dataset of global batches. A collective: all workers call it.

    Args:
        dataset: a batched `tf.data.Dataset`, the same on all workers.
        strategy: the `BytePSStrategy`.

    Returns:
        A `BytePSDataset`. If random numbers or Python decide how long it is, all workers go on
        until the last of them has reached its end, with empty pieces where there is nothing left;
        but see `lengths.ending_alone`.

    Raises:
        ValueError: its elements have no batch axis, or the workers' datasets differ in length,
            seeds or the content that can be seen.
    """
    if isinstance(dataset, BytePSDataset):
        return dataset
    size = strategy.num_replicas_in_sync
    policy = dataset.options().experimental_distribute.auto_shard_policy
    if policy == _AutoShardPolicy.OFF:
        return distribute_own(dataset)
    if policy == _AutoShardPolicy.FILE and size > 1:
        _warn_of_skewed_files(dataset, strategy)
        return distribute_own(_by_files(dataset, runtime.rank(), size))
    may_differ = lengths.may_differ(dataset)
    check_same(
        {
            "length": int(dataset.cardinality()),
            "elements": str(dataset.element_spec),
            _EARLIER_USES: _earlier_uses(dataset),
            "use of functions by which the length may differ": may_differ,
            "number of files that are caches": (cached := len(caches.files(dataset))),
        },
        lambda: _content(dataset),
    )
    if size == 1:
        return BytePSDataset(dataset)
    if cached:
        dataset = caches.with_own_files(dataset, f"dataset@{names.call_site()}")
    asks = may_differ and not lengths.ends_alone()
    name = f"dataset@{names.call_site()}/more"
    if asks and lengths.is_pythons(dataset):
        share = together.pieces_of_same(dataset, runtime.rank(), size, name, _ADVICE)
    else:
        share = pieces.split(dataset, runtime.rank(), size).prefetch(tf.data.AUTOTUNE)
        if asks:
            share = together.until_all_end(share, name)
    return BytePSDataset(share, fetches=not asks, is_cut=True, asks=asks)


def distribute_own(dataset: tf.data.Dataset) -> Any:
    """A dataset of per-worker batches, each worker's own. A collective: all workers call it.

    Workers may have different numbers of batches: whoever runs out goes on with empty ones until
    all have.

    Args:
        dataset: this worker's `tf.data.Dataset`.

    Returns:
        A `BytePSDataset`.
    """
    if isinstance(dataset, BytePSDataset):
        return dataset
    if runtime.size() == 1:
        return BytePSDataset(dataset)
    name = f"dataset@{names.call_site()}"
    mine = [
        int(dataset.cardinality()),
        building.known_shapes(dataset.element_spec),
        _own_content(dataset),
        len(caches.files(dataset)),
    ]
    everyones, known, contents, cached = zip(*gather_objects(name, mine), strict=True)
    shuffle.next_generation()
    if any(cached):
        dataset = caches.with_own_files(dataset, name, is_whole=False)
    if contents[0] is not None and all(each == contents[0] for each in contents):
        _warn_of_same_data()
    ends_alike = len(set(everyones)) == 1 and everyones[0] != _UNKNOWN
    asks = not ends_alike and not lengths.ends_alone()
    if asks:
        dataset = together.until_all_end(dataset, f"{name}/more")
    return BytePSDataset(dataset, min(known), fetches=not asks, asks=asks)


def check_ends_alone(dataset: BytePSDataset) -> None:
    """Refuses a dataset that waits for all workers where each makes its own number of steps.

    Args:
        dataset: what a training with a quorum reads.

    Raises:
        ValueError: on all workers.
    """
    if dataset.asks:
        raise on_all_workers(
            ValueError(
                "with a quorum each worker makes its own number of steps, and this dataset waits "
                "for all workers in each step, as their lengths may differ: give fit the "
                "tf.data.Dataset itself, and the strategy no warmup_steps"
            )
        )


def _own_content(dataset: tf.data.Dataset) -> Any:
    """What to compare of a dataset that should be another on each worker, or `None`.

    What is read by a function, or from files, may differ in ways that cannot be seen.
    """
    stages = content.stages(dataset)
    return content.of_dataset(dataset) if all(map(content.is_plain, stages)) else None


def _warn_of_same_data() -> None:
    if runtime.rank() == 0:
        _logger.warning(
            "all workers have the same data, in the same order, though each trains on all of its "
            "own: they compute the same gradients. Call dataset.shard(workers, rank), or leave out "
            "AutoShardPolicy.OFF for data of which each worker is to get its part"
        )


def _warn_of_skewed_files(dataset: tf.data.Dataset, strategy: tf.distribute.Strategy) -> None:
    """With local steps: workers whose rows differ in kind train apart between two rounds."""
    local_steps = getattr(strategy, "local_steps", None)
    if not isinstance(local_steps, LocalSteps) or local_steps.steps == 1:
        return
    if runtime.rank() == 0 and not content.is_shuffled(dataset):
        _logger.warning(
            "with local_steps=%d each worker trains on files of its own, and the dataset is "
            "nowhere shuffled: if files are sorted by label, the workers learn different things "
            "between two rounds. Shuffle the names of the files before they are read, or leave "
            "out AutoShardPolicy.FILE; see docs/local_steps.md",
            local_steps.steps,
        )


def _by_files(dataset: tf.data.Dataset, rank: int, size: int) -> Any:
    """TensorFlow's own sharding by input files, with each worker's part of the batch size."""
    batch_size: Any = data_distribute.compute_batch_size(dataset)
    if int(batch_size) < 0:
        raise ValueError(
            "AutoShardPolicy.FILE needs a dataset whose batch size is fixed: call "
            "dataset.batch(...) last"
        )
    sizes = data_distribute.batch_sizes_for_worker(batch_size, size, 1, rank)
    rebatched: Any = dataset.rebatch(cast(Any, sizes))
    share: Any = data_distribute._AutoShardDataset(rebatched, size, rank, size)
    return pieces.split(share, 0, 1)  # all rows, but not as the views that `rebatch` makes


def check_same(mine: dict[str, Any], content_of_mine: Callable[[], object] | None) -> None:
    """Refuses data that differ between the workers. A collective.

    With them the workers would run different numbers of steps, or see rows twice.

    Args:
        mine: a dictionary of what must agree, in words that an error message can use.
        content_of_mine: returns what `same` compares; called if there are other workers.

    Raises:
        ValueError: on every worker, if it does not agree.
    """
    mine = {**mine, "shuffle seed": shuffle.user_seed_in_use()}
    shuffle.next_generation()
    if runtime.size() == 1:
        return
    mine[_CONTENT] = content_of_mine()
    everyone = gather_objects(f"dataset@{names.call_site()}", mine)
    contents = [each.pop(_CONTENT) for each in everyone]
    for rank, other in enumerate(everyone):
        for key, value in everyone[0].items():
            if other.get(key) != value:
                raise on_all_workers(
                    ValueError(
                        f"the workers' data differ in {key}: worker 0 has {value}, worker {rank} "
                        f"has {other.get(key)}. {_OTHER_ADVICE.get(key, _ADVICE)}"
                    )
                )
        if not same(contents[0], contents[rank]):
            raise on_all_workers(
                ValueError(
                    f"the workers' data differ in {_CONTENT}: worker {rank}'s rows, their order or "
                    f"the seeds of their shuffles are not worker 0's. {_ADVICE}"
                )
            )


def _content(dataset: tf.data.Dataset) -> Any:
    if content.is_unseeded(dataset):
        # A number that no other worker has.
        return [f"an unseeded shuffle of worker {runtime.rank()}"]
    return content.of_dataset(dataset)


def _earlier_uses(dataset: Any) -> Any:
    """How often this object was distributed before, if its order depends on that."""
    if not runtime.config().elastic or not _shuffles_anew(dataset):
        return 0
    uses = getattr(dataset, "_byteps_uses", 0)
    dataset._byteps_uses = uses + 1
    return uses


def _shuffles_anew(dataset: tf.data.Dataset) -> bool:
    stages = content.stages(dataset)
    return any(getattr(stage, "_reshuffle_each_iteration", False) for stage in stages)
