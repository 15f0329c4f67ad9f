"""Runs the programs of docs/migration.md with two workers."""

import importlib
import pathlib
import re
import sys
import types

import pytest

from tests.cluster import ROOT, run_workers

PAGE = pathlib.Path(ROOT) / "docs" / "migration.md"
# The other libraries' modules, and what stands in for them.
STAND_INS = {"horovod.keras": "tf_byteps.keras", "byteps.tensorflow": "tf_byteps"}


def programs():
    """{section: (the program before, the program after)}"""
    found = {}
    for section in re.split(r"^## From ", PAGE.read_text(), flags=re.M)[1:]:
        before, after = re.findall(r"^```python\n(.*?)^```", section, flags=re.M | re.S)
        found[section.split("\n")[0]] = (before, after)
    return found


def run_pages():
    """Called in each worker: {section: the weights after each program that can be run}."""
    import keras

    for name, stand_in in STAND_INS.items():
        package, _, module = name.partition(".")
        sys.modules[package] = types.ModuleType(package)
        sys.modules[name] = importlib.import_module(stand_in)
        setattr(sys.modules[package], module, sys.modules[name])
    results = {}
    for section, pair in programs().items():
        runnable = pair[1:] if section == "MultiWorkerMirroredStrategy" else pair
        results[section] = []
        for program in runnable:
            keras.backend.clear_session()
            keras.utils.set_random_seed(1)
            path = f"{section} of {PAGE.name}"
            variables = {"__name__": "__main__"}
            exec(compile(program, path, "exec"), variables)
            results[section].append([w.tolist() for w in variables["model"].get_weights()])
    return results


@pytest.fixture(scope="module")
def results():
    return run_workers(run_pages, workers=2, servers=1, timeout=90)


@pytest.mark.parametrize("section", ["Horovod", "BytePS", "MultiWorkerMirroredStrategy"])
def test_programs(results, section):
    assert results[0][section] == results[1][section]
    first, *others = results[0][section]
    assert all(other == first for other in others)


def test_after_differs_from_before_in_the_module_only():
    for name in ("Horovod", "BytePS"):
        before, after = programs()[name]
        for module in STAND_INS:
            before = re.sub(rf"import {re.escape(module)} as \w+\n", "", before)
        after = re.sub(r"import tf_byteps(\.keras)? as bps\n", "", after)
        assert before.replace("hvd.", "bps.") == after
