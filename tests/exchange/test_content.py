"""What workers compare of their data: little of large arrays, and enough of all."""

import numpy as np
import pytest

from tf_byteps.exchange import content


def test_other_rows_are_found_in_images():
    images = np.random.default_rng(0).random((256, 64, 64, 3), np.float32)
    seen, *others = (content.of_arrays([array]) for array in (images, images[::-1], images + 1))
    assert content.same(seen, content.of_arrays([images.copy()]))
    assert not any(content.same(seen, other) for other in others)
    (of_images,) = seen
    assert len(of_images["rows"]) == 128


def test_last_bits_may_differ():
    images = np.random.default_rng(0).random((8, 64, 64, 3), np.float32)
    others = np.nextafter(images, np.float32(2))
    assert content.same(content.of_arrays([images]), content.of_arrays([others]))


@pytest.mark.parametrize("shape", [(), (0,), (5,), (0, 5), (4, 0), (1, 100_000)])
def test_arrays_of_any_shape_are_compared(shape):
    array = np.ones(shape)
    seen = content.of_arrays([array])
    assert content.same(seen, content.of_arrays([array]))
    assert content.same(seen, content.of_arrays([array + 1])) == (not array.size)


def test_a_row_of_nan_is_as_another():
    rows = np.array([[np.nan, 1.0], [np.inf, 2.0]])
    assert content.same(content.of_arrays([rows]), content.of_arrays([rows.copy()]))
