"""Runs the program of Keras-RS with another import."""

import os

import tf_byteps

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keras_rs_program.py")
IMPORT = "import keras_rs\n"


def changed():
    """What the program says it has found, and its text."""
    with open(PATH) as file:
        text = file.read()
    program = text.replace(IMPORT, "import tf_byteps.keras as keras_rs\n")
    names = {"__name__": "keras_rs_program"}
    with tf_byteps.BytePSStrategy().scope():
        exec(compile(program, PATH, "exec"), names)
    return names["result"], text.count(IMPORT)
