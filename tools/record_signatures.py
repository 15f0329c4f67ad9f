"""Adds the signatures of the installed Keras and TensorFlow to tf_byteps/recorded_signatures.py.

usage: PYTHONPATH=folder_with_another_keras python tools/record_signatures.py

With KERAS_BACKEND=jax, those that are changed where Keras runs on JAX.
"""

import pathlib
import pprint
import subprocess
import sys

from tf_byteps import signatures
from tf_byteps.recorded_signatures import SIGNATURES

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


def main():
    """Writes the file anew: what it has, and what is installed."""
    recorded = {name: set(forms) for name, forms in SIGNATURES.items()}
    for owner, name, _ in replaced_functions():
        form = signatures.form_of(getattr(owner, name))
        recorded.setdefault(signatures.name_of(owner, name), set()).add(form)
    table = {name: tuple(sorted(forms)) for name, forms in sorted(recorded.items())}
    _FILE.write_text(_HEAD + pprint.pformat(table, width=96) + "\n")
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", _FILE], check=True)


if __name__ == "__main__":
    main()
