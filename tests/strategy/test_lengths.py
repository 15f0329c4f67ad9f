"""Which pipelines may have another length on each worker."""

import pytest
import tensorflow as tf

from tf_byteps.strategy.input import lengths

_NUMBERS = tf.data.Dataset.range(10)
_LINES = tf.data.TextLineDataset(["a.txt"]).filter(lambda line: tf.strings.length(line) > 0)
_FILES = tf.data.Dataset.from_tensor_slices(["a", "b"]).interleave(tf.data.TFRecordDataset)


def _random(*_):
    return tf.random.uniform([])


@pytest.mark.parametrize(
    "pipeline, expected",
    [
        pytest.param(_NUMBERS.map(_random), False, id="a known length"),
        pytest.param(_NUMBERS.shuffle(10).filter(lambda v: v % 2 == 0), False, id="a filter"),
        pytest.param(_NUMBERS.filter(lambda v: _random() < 0.5), True, id="a random filter"),
        pytest.param(
            _NUMBERS.map(_random).filter(lambda v: v < 0.5), True, id="a filter of random values"
        ),
        pytest.param(
            _NUMBERS.rejection_resample(lambda v: tf.cast(v % 2, tf.int32), [0.5, 0.5]),
            True,
            id="rejection",
        ),
        pytest.param(_LINES, False, id="lines"),
        pytest.param(_FILES, False, id="records"),
        pytest.param(
            _FILES.map(_random, num_parallel_calls=2).prefetch(1), False, id="random augmentation"
        ),
        pytest.param(
            tf.data.Dataset.from_generator(
                lambda: iter(range(3)), output_signature=tf.TensorSpec([], tf.int64)
            ),
            True,
            id="a generator",
        ),
        pytest.param(
            _NUMBERS.map(lambda v: tf.range(_random() * 5)).unbatch(),
            True,
            id="rows of random number",
        ),
    ],
)
def test_may_differ(pipeline, expected):
    assert lengths.may_differ(pipeline.batch(2)) == expected


@pytest.mark.parametrize(
    "spec",
    [
        tf.TensorSpec([None, 3, None], tf.string),
        tf.SparseTensorSpec([None, 4], tf.float32),
        tf.RaggedTensorSpec([None, None, 3], tf.float32, ragged_rank=1),
        tf.RaggedTensorSpec([None, None, None], tf.int32, ragged_rank=2, row_splits_dtype=tf.int32),
        tf.OptionalSpec(None),
    ],
    ids=lambda spec: type(spec).__name__,
)
def test_empty_elements_fit_their_specification(spec):
    assert spec.is_compatible_with(lengths.empty(spec))


def test_elements_that_are_no_batches_have_no_empty_one():
    with pytest.raises(ValueError, match="need elements that are batches"):
        lengths.empty(tf.TensorSpec([], tf.int32))
