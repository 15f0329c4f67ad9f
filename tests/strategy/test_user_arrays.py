"""A program's arrays, and files mapped to memory, are as before when workers have trained on them.

What was shown is what a single process without tf_byteps shows.
"""

import json
import os

import numpy as np
import pytest
from selection import asked

from tests import workers

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(920)

PROGRAM = os.path.join(os.path.dirname(__file__), "user_arrays_programs.py")
CASES = {
    "arrays": {},
    "py_dataset": {},
    "py_dataset_threads": {},
    "py_dataset_processes": {},
    "generator": {},
    "from_generator": {},
    "from_numpy": {},
    "from_tensor_slices": {},
    "ragged": {},
    "sparse": {},
    "float64": {"feed": "from_generator", "kind": "float64"},
    "uint8": {"feed": "py_dataset", "kind": "uint8"},
    "int64": {"feed": "from_generator", "kind": "int64"},
    "string": {"feed": "from_generator", "kind": "string"},
    "read-only file": {"feed": "py_dataset", "kind": "mapped r"},
    "writable file": {"feed": "py_dataset", "kind": "mapped r+"},
    "hdf5": {"feed": "arrays", "kind": "hdf5"},
    "evaluate": {"feed": "py_dataset", "way": "evaluate"},
    "predict": {"feed": "generator", "way": "predict"},
    "by hand": {"feed": "arrays", "way": "by_hand"},
    "own loop": {"feed": "from_generator", "way": "own_loop"},
    "own loop, ragged": {"feed": "ragged", "way": "own_loop"},
    "own loop, sparse": {"feed": "sparse", "way": "own_loop"},
}
# XLA compiles neither strings nor tensors that are not dense.
_NOT_COMPILED = ("string", "ragged", "sparse")
# The same ways to feed with other kinds of numbers, of files, or in loops.
_EXTENDED = (
    *("uint8", "int64", "float64", "read-only file", "sparse"),
    *("own loop, ragged", "own loop, sparse"),
)
_SLOW = ("py_dataset_threads", "py_dataset_processes", "from_tensor_slices")


def _scenario(name, compiled):
    arguments = {"feed": name, "compiled": compiled, **CASES[name]}
    return f"case={json.dumps(arguments)}"


def _parameters():
    for name in CASES:
        for size in (1, 2, 3):
            for compiled in (False, True):
                if compiled and (name in _NOT_COMPILED or "loop" in name):
                    continue
                is_slow = compiled or size != 2 or name in _SLOW
                words = f"{name}-{size}" + ("-compiled" if compiled else "")
                marks = [pytest.mark.slow] if is_slow else []
                marks += [pytest.mark.extended] if name in _EXTENDED else []
                yield pytest.param(name, size, compiled, id=words, marks=marks)


@pytest.fixture(scope="module")
def groups(request):
    """A function of a number of workers, or 0 for the single process: what they showed."""
    found = {}

    def of(size):
        if size not in found:
            cases = [
                _scenario(each["name"], each["compiled"])
                for each in asked(request, test_arrays_stay_as_they_are)
                if size in (0, each["size"])
            ]
            found[size] = workers.run(PROGRAM, list(dict.fromkeys(cases)), size, timeout=900)
        return found[size]

    return of


@pytest.mark.parametrize(("name", "size", "compiled"), list(_parameters()))
def test_arrays_stay_as_they_are(groups, name, size, compiled):
    scenario = _scenario(name, compiled)
    (single,) = groups(0)[scenario]
    tolerance = 1e-9 if CASES[name].get("kind") == "float64" else 1e-5
    for shown in groups(size)[scenario]:
        np.testing.assert_allclose(shown, single, rtol=tolerance, atol=tolerance)
