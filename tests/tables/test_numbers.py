"""Numbers of rows that travel with the rows, and their order."""

import numpy as np
import pytest
import tensorflow as tf

from tf_byteps.tables import lookup
from tf_byteps.tables.layout import Layout

SHORT = [("int32", dtype) for dtype in ("float16", "bfloat16", "float32")]
LONG = [("int64", dtype) for dtype in ("float16", "bfloat16", "float32", "float64")]


@pytest.mark.parametrize(("numbers_dtype", "rows_dtype"), [*SHORT, *LONG])
def test_numbers_come_back_from_before_their_rows(numbers_dtype, rows_dtype):
    most = tf.as_dtype(numbers_dtype).max
    numbers = tf.constant([0, 1, -1, most, most - 1], numbers_dtype)
    rows = tf.cast(tf.reshape(tf.range(15), [5, 3]), rows_dtype)
    packed = lookup.with_numbers(numbers, rows)
    found, values = lookup.without_numbers(packed, numbers.dtype)
    np.testing.assert_array_equal(found, numbers)
    np.testing.assert_array_equal(tf.cast(values, tf.float32), tf.cast(rows, tf.float32))


def test_numbers_are_long_only_where_they_must_be():
    small = Layout((("a", 2**31 - 5),), 4, 0)
    large = Layout((("a", 2**31 - 5), ("b", 5)), 4, 0)
    assert lookup.number_dtype(small) == lookup.number_dtype(small, tf.float16) == tf.int32
    assert lookup.number_dtype(small, tf.float64) == lookup.number_dtype(large) == tf.int64


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_rows_are_sorted_by_owner_and_else_as_they_were(workers):
    rows = np.random.default_rng(workers).permutation(50)
    asked, counts, order = lookup.by_owner(Layout((("a", 50),), workers, 0), tf.constant(rows))
    expected = np.argsort(rows % workers, kind="stable")
    np.testing.assert_array_equal(order, expected)
    np.testing.assert_array_equal(asked, rows[expected])
    np.testing.assert_array_equal(counts, np.bincount(rows % workers, minlength=workers))
