"""What the processes of tests do before they import Keras."""

import sys


def leave_out_sklearn():
    """Lets Keras start as where scikit-learn is not installed.

    Keras imports it, if it is there, for wrappers that no program of these tests uses. That takes a
    second of processor time of the four that each process needs to start. Examples and programs
    that use scikit-learn are started in other ways, and have it.
    """
    sys.modules.setdefault("sklearn", None)
