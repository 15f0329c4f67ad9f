"""Scalars for TensorBoard, by its own package, which needs no framework."""

import os

from tf_byteps.keras.interface import ScalarWriter


class Scalars(ScalarWriter):
    """See `Framework.scalar_writer`."""

    def __init__(self, directory: str) -> None:
        try:
            from tensorboard.summary import Writer
        except ImportError as error:
            raise ImportError(
                f"with Keras on JAX it needs TensorBoard ({error}): `pip install tensorboard`"
            ) from error
        os.makedirs(directory, exist_ok=True)
        self._writer = Writer(directory)

    def write(self, name: str, value: float, position: int) -> None:
        self._writer.add_scalar(name, value, position)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
