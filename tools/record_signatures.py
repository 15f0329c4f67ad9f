"""Adds the signatures of the installed Keras and TensorFlow to tf_byteps/recorded_signatures.py.

usage: PYTHONPATH=folder_with_another_keras python tools/record_signatures.py

It looks where Keras runs on TensorFlow and where it runs on JAX, which must be installed. Functions
that tf_byteps changes in neither are removed from the file.
"""

import json
import os
import pathlib
import pprint
import subprocess
import sys

from tf_byteps import signatures
from tf_byteps.recorded_signatures import SIGNATURES

BACKENDS = ("tensorflow", "jax")
_FILE = pathlib.Path(signatures.__file__).with_name("recorded_signatures.py")
_HEAD = '''"""Parameters of the functions of Keras and TensorFlow that tf_byteps changes.

Each with those of all tested versions; written by tools/record_signatures.py.
"""

SIGNATURES: dict[str, tuple[str, ...]] = '''


def replaced_functions():
    """Every `Change` that tf_byteps makes at some time."""
    import keras

    from tf_byteps import wrapping

    if keras.backend.backend() == "jax":
        from tf_byteps.strategy.jax import hooks

        hooks.install()
    else:
        from tf_byteps.elastic import retracing
        from tf_byteps.gradients import table_optimizers
        from tf_byteps.strategy import keras_hooks

        keras_hooks.install()
        retracing.next_epoch()
        table_optimizers.install()

    import tf_byteps.keras

    tf_byteps.keras.DistributedOptimizer(keras.optimizers.SGD())
    tf_byteps.keras.callbacks.LeaveOnSignal()
    return list(wrapping.replaced)


def installed_forms():
    """The parameters of these functions, by their names."""
    return {
        signatures.name_of(owner, name): signatures.form_of(getattr(owner, name))
        for owner, name, _ in replaced_functions()
    }


def forms_on(backend):
    """`installed_forms` of a process in which Keras runs on a backend.

    Raises:
        subprocess.CalledProcessError: it does not run there.
    """
    program = "import json, record_signatures as r; print(json.dumps(r.installed_forms()))"
    output = subprocess.check_output(
        [sys.executable, "-c", program],
        cwd=pathlib.Path(__file__).parent,
        env={**os.environ, "KERAS_BACKEND": backend},
        text=True,
    )
    return json.loads(output.splitlines()[-1])


def merged(recorded, installed):
    """What is known of the functions that are replaced now.

    Args:
        recorded: all parameters that are known, by the function's name.
        installed: a list of `installed_forms`. What is in none of them is not replaced any more.
    """
    forms = {}
    for name, form in (each for found in installed for each in found.items()):
        forms.setdefault(name, {*recorded.get(name, ())}).add(form)
    return {name: tuple(sorted(forms[name])) for name in sorted(forms)}


def main():
    """Writes the file anew: what it has, and what is installed."""
    table = merged(SIGNATURES, [forms_on(backend) for backend in BACKENDS])
    _FILE.write_text(_HEAD + pprint.pformat(table, width=96) + "\n")
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", _FILE], check=True)


if __name__ == "__main__":
    main()
