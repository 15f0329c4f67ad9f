"""What the processes of tests do before they import Keras."""

import sys


def leave_out_packages(*names):
    """Lets Keras start as where scikit-learn and pyarrow are not installed.

    Keras imports scikit-learn, if it is there, for wrappers that no program of these tests uses.
    That takes a second of processor time of the four that each process needs to start. pandas
    imports pyarrow, which comes with Ray and starts a thread. Examples and programs that use them
    are started in other ways, and have them.

    Args:
        *names: of more packages. TensorFlow, too, imports "jax" if it is there.
    """
    for name in ("sklearn", "pyarrow", *names):
        sys.modules.setdefault(name, None)
