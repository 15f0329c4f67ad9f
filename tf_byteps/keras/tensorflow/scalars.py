"""Scalars for TensorBoard, by TensorFlow."""

import tensorflow as tf

from tf_byteps.keras.interface import ScalarWriter


class Scalars(ScalarWriter):
    """See `Framework.scalar_writer`."""

    def __init__(self, directory: str) -> None:
        try:
            self._writer = tf.summary.create_file_writer(directory)
            self._writer.init()
        except tf.errors.OpError as error:
            raise OSError(str(error)) from error

    def write(self, name: str, value: float, position: int) -> None:
        with self._writer.as_default(step=position):
            tf.summary.scalar(name, value)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
