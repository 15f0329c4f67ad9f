"""Messages of several frames."""

from collections.abc import Sequence

import zmq

from tf_byteps import signals


def send_frames(socket: zmq.Socket, frames: Sequence[bytes], flags: int = 0) -> None:
    """Sends a message of several frames, all or none.

    A signal between two of them would leave the first, and the next message would become the rest
    of this one, for the wrong process.

    Args:
        socket: a ZeroMQ socket.
        frames: in order.
        flags: of ZeroMQ.

    Raises:
        zmq.ZMQError: it cannot be sent.
    """
    with signals.deferred():
        socket.send_multipart(frames, flags)
