"""The programs of docs/migration.md, for the workers of test_migration.py."""

import importlib
import pathlib
import re
import sys
import types

import keras

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "migration.md"
# The other libraries' modules, and what stands in for them.
STAND_INS = {"horovod.keras": "tf_byteps.keras", "byteps.tensorflow": "tf_byteps"}


def programs():
    """{title of a section: (the program before, the program after)}

    The page shows the latter; comments say what a line was before, or that it is new.
    """
    found = {}
    for section in re.split(r"^##+ ", PAGE.read_text(), flags=re.M)[1:]:
        for shown in re.findall(r"^```python\n(.*?)^```", section, flags=re.M | re.S):
            before = re.sub(r"^.*  # new\n", "", shown, flags=re.M)
            before = re.sub(r"^(\w+ = )?.*  # was: (.*)$", r"\1\2", before, flags=re.M)
            after = re.sub(r"  # (new|was: .*)$", "", shown, flags=re.M)
            assert before != after, "no comment says what was changed"
            found[section.split("\n")[0]] = (before, after)
    return found


def run(title, position):
    """Runs a program; returns the weights that it ends with."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    variables = {"__name__": "__main__"}
    program = programs()[title][position]
    exec(compile(program, f"{title} of {PAGE.name}", "exec"), variables)
    return [weights.tolist() for weights in variables["model"].get_weights()]


def run_both(title):
    """The weights after the program of another library, with tf_byteps under its name, and after
    ours."""
    for name, stand_in in STAND_INS.items():
        package, _, module = name.partition(".")
        sys.modules[package] = types.ModuleType(package)
        sys.modules[name] = importlib.import_module(stand_in)
        setattr(sys.modules[package], module, sys.modules[name])
    return [run(title, position) for position in (0, 1)]
