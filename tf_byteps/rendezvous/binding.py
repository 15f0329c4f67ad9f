"""Where the scheduler's sockets listen."""

import errno
from collections.abc import Sequence

import zmq

from tf_byteps.rendezvous.messages import Address


def bind(router: zmq.Socket, host: str, ports: Sequence[int]) -> int:
    """Has a socket listen at the first of some ports that is free.

    Args:
        router: the socket.
        host: a numeric address.
        ports: at least one; 0: any that is free.

    Returns:
        The port.

    Raises:
        ZMQError: none of them can be used.
    """
    router.setsockopt(zmq.IPV6, int(":" in host))
    for port in ports:
        try:
            router.bind(f"tcp://{Address(host, port)}")
            break
        except zmq.ZMQError as error:
            if error.errno != errno.EADDRINUSE or port == ports[-1]:
                raise
    bound = router.getsockopt_string(zmq.LAST_ENDPOINT)
    return int(bound.rpartition(":")[2])
