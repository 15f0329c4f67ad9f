"""`examples/demo_training.py` with a reduction of gradients that is wrong as DEMO_FAULT says."""

import os
import pathlib
import runpy
import sys

_TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(_TESTS))

import wrong_reductions  # noqa: E402

with wrong_reductions.wrong_reduction(os.environ["DEMO_FAULT"]):
    runpy.run_path(str(_TESTS.parent / "examples" / "demo_training.py"), run_name="__main__")
