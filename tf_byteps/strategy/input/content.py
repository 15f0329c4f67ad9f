"""Do all workers have the same data? A look at some rows, without reading the input.

Every worker goes through all rows and takes its pieces, so that the rows and their order must be
the same everywhere. What a worker says of its data is short: for some rows of each tensor a number,
and the seeds and other numbers of the pipeline. Rows that a generator or a file gives are not
looked at.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_byteps.exchange.content import of_floats, sample
from tf_byteps.ops.fingerprints import fingerprints

# Attributes of stages on which rows and their order depend, as threads and prefetching do not.
_NUMBERS = ("_seed", "_seed2", "_start", "_stop", "_step", "_num_shards", "_index", "_count")
_NUMBERS += ("_batch_size", "_size", "_shift", "_stride")
_SHUFFLE = "_ShuffleDataset"
_RANDOM = (_SHUFFLE, "_RandomDataset")
_MAPS = ("_MapDataset", "_ParallelMapDataset")
_READERS = ("TextLineDatasetV2", "TFRecordDatasetV2", "FixedLengthRecordDatasetV2")


def of_tensors(tensors: Sequence[tf.Tensor]) -> list[Any]:
    """What to compare of some tensors.

    Args:
        tensors: a list of `tf.Tensor` that are not symbolic.

    Returns:
        A value for JSON, see `same`.
    """
    return [_of_tensor(tensor) for tensor in tensors if _holds_data(tensor)]


def of_dataset(dataset: tf.data.Dataset) -> Any:
    """What to compare of the tensors and numbers that a pipeline is made of.

    Args:
        dataset: a `tf.data.Dataset`.

    Returns:
        A value for JSON, see `same`.
    """
    found = []
    for stage in stages(dataset):
        given: dict[str, Any] = {key: getattr(stage, key, None) for key in _NUMBERS}
        numbers = {key: int(value) for key, value in given.items() if _holds_data(value)}
        tensors = [_some_rows(tensor) for tensor in getattr(stage, "_tensors", ())]
        if numbers or tensors:
            found.append([numbers, of_tensors(tensors)])
    return found


def stages(dataset: tf.data.Dataset) -> list[Any]:
    """The datasets that a pipeline consists of, but for those that its functions make."""
    below = list(dataset._inputs())
    if isinstance(getattr(dataset, "_filenames", None), tf.data.Dataset):
        below.append(dataset._filenames)
    return [dataset, *(stage for each in below for stage in stages(each))]


def is_shuffled(dataset: tf.data.Dataset) -> bool:
    """Whether rows, or what they are read from, come in a random order."""
    return any(type(stage).__name__ == _SHUFFLE for stage in stages(dataset))


def is_unseeded(dataset: tf.data.Dataset) -> bool:
    """Whether each process draws an order of its own: it was made before any `BytePSStrategy`."""
    return any(map(_unseeded, stages(dataset)))


def _unseeded(stage: Any) -> bool:
    if type(stage).__name__ not in _RANDOM or not _holds_data(stage._seed):
        return False
    return int(stage._seed) == int(stage._seed2) == 0


def is_plain(stage: Any) -> bool:
    """Whether what `of_dataset` says of a stage is all that it depends on."""
    functions = [each for each in stage._functions() if type(stage).__name__ not in _MAPS]
    return not functions and not _unseeded(stage) and type(stage).__name__ not in _READERS


def _holds_data(value: Any) -> Any:
    is_eager = tf.is_tensor(value) and hasattr(value, "numpy")
    return is_eager and value.dtype not in (tf.variant, tf.resource)


def _some_rows(tensor: tf.Tensor) -> Any:
    if not _holds_data(tensor) or not tensor.shape.rank:
        return tensor
    return tf.gather(tensor, sample(tensor.shape[0])) if tensor.shape[0] else tensor


def _of_tensor(tensor: tf.Tensor) -> Any:
    """A number for each row of floating-point numbers, else one for all."""
    if tensor.dtype == tf.string:
        # Hosts may keep the same files in different folders.
        tensor = tf.strings.regex_replace(tensor, ".*/", "")
    if not tensor.dtype.is_floating:
        return fingerprints([tensor])
    return of_floats(tensor.numpy())
