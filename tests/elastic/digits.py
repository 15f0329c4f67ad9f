"""The digits of scikit-learn for workers, without the second that each would import it for."""

import functools
import importlib.metadata

import numpy as np


@functools.cache
def load():
    """Images, an array of 1797 rows of 64 numbers from 0 to 16, and their labels.

    They are what `sklearn.datasets.load_digits(return_X_y=True)` returns.
    """
    package = importlib.metadata.distribution("scikit-learn")
    rows = np.loadtxt(package.locate_file("sklearn/datasets/data/digits.csv.gz"), delimiter=",")
    images, labels = rows[:, :-1], rows[:, -1].astype(int)
    images.flags.writeable = labels.flags.writeable = False  # each caller gets the same
    return images, labels
