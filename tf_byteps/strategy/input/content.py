"""Do all workers have the same data? A look at some rows, without reading the input.

Every worker goes through all rows and takes its pieces, so that the rows and their order must be
the same everywhere. What a worker says of its data is short: for some rows of each tensor a number,
and the seeds and other numbers of the pipeline. Rows that a generator or a file gives are not
looked at.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from tf_byteps.ops.fingerprints import fingerprints

_ROWS = 128
# Attributes of stages on which rows and their order depend, as threads and prefetching do not.
_NUMBERS = ("_seed", "_seed2", "_start", "_stop", "_step", "_num_shards", "_index", "_count")
_NUMBERS += ("_batch_size", "_size", "_shift", "_stride")
_RANDOM = ("_ShuffleDataset", "_RandomDataset")
_MAPS = ("_MapDataset", "_ParallelMapDataset")
_READERS = ("TextLineDatasetV2", "TFRecordDatasetV2", "FixedLengthRecordDatasetV2")
# Computed on each host, floating-point numbers may differ in their last bits.
_TOLERANCE = 1e-5
_TOLERANCE_OF_HALVES = 1e-2


def sample(rows: Any) -> Any:
    """The numbers of some rows of many, evenly spread: a NumPy array of int64."""
    return np.unique(np.linspace(0, rows - 1, min(rows, _ROWS)).astype(np.int64))


def of_tensors(tensors: Any) -> list[Any]:
    """What to compare of some tensors.

    Args:
        tensors: a list of `tf.Tensor` that are not symbolic.

    Returns:
        A value for JSON, see `same`.
    """
    return [_of_tensor(tensor) for tensor in tensors if _holds_data(tensor)]


def of_dataset(dataset: Any) -> Any:
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


def stages(dataset: Any) -> list[Any]:
    """The datasets that a pipeline consists of, but for those that its functions make."""
    below = list(dataset._inputs())
    if isinstance(getattr(dataset, "_filenames", None), tf.data.Dataset):
        below.append(dataset._filenames)
    return [dataset, *(stage for each in below for stage in stages(each))]


def is_unseeded(dataset: Any) -> bool:
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


def same(one: Any, other: Any) -> Any:
    """Whether two workers' values of `of_tensors` or `of_dataset` are of the same data."""
    if isinstance(one, dict) and "rows" in one:
        return _close(one, other)
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    return one == other


def _holds_data(value: Any) -> Any:
    is_eager = tf.is_tensor(value) and hasattr(value, "numpy")
    return is_eager and value.dtype not in (tf.variant, tf.resource)


def _some_rows(tensor: Any) -> Any:
    if not _holds_data(tensor) or not tensor.shape.rank:
        return tensor
    return tf.gather(tensor, sample(tensor.shape[0])) if tensor.shape[0] else tensor


def _of_tensor(tensor: Any) -> Any:
    """A number for each row of floating-point numbers, else one for all."""
    if tensor.dtype == tf.string:
        # Hosts may keep the same files in different folders.
        tensor = tf.strings.regex_replace(tensor, ".*/", "")
    if not tensor.dtype.is_floating:
        return fingerprints([tensor])
    values = np.nan_to_num(tf.cast(tensor, tf.float64).numpy(), posinf=1e9, neginf=-1e9)
    values = values.reshape(values.shape[0] if values.ndim > 1 else 1, -1)
    size = float(np.mean(np.abs(values)) * np.sqrt(values.shape[1])) if values.size else 0.0
    numbers = values @ np.cos(np.arange(values.shape[1]))
    return {
        "rows": [float(f"{number:.7g}") for number in numbers],
        "tolerance": size * (_TOLERANCE if tensor.dtype.size > 2 else _TOLERANCE_OF_HALVES),
    }


def _close(one: Any, other: Any) -> Any:
    if not isinstance(other, dict) or len(one["rows"]) != len(other["rows"]):
        return False
    return np.allclose(one["rows"], other["rows"], rtol=0, atol=one["tolerance"] + 1e-12)
