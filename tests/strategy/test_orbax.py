"""`keras.callbacks.OrbaxCheckpoint`, with all workers' callbacks in one folder."""

import importlib.util
import os
import pathlib

import pytest
from shared_folder import Group

pytestmark = pytest.mark.time_limit(620)


_ORBAX = importlib.util.find_spec("orbax")


@pytest.mark.skipif(_ORBAX is None, reason="orbax is not installed (pip install orbax-checkpoint)")
def test_orbax(tmp_path):
    places = [pathlib.Path(__file__).parents[2], *_ORBAX.submodule_search_locations]
    places[1:] = [pathlib.Path(place).parent for place in places[1:]]
    path = os.pathsep.join(map(str, places))
    results = Group(tmp_path, 2, {"orbax": {}}, PYTHONPATH=path)["orbax"]
    assert results[0] == results[1]
    assert results[0][1] == ["1", "2"]
