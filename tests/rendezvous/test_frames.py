"""A signal leaves no message of the scheduler's in its middle."""

import os
import signal

import pytest
import zmq

from tf_byteps import signals
from tf_byteps.rendezvous.frames import send_frames

_RECEIVE_MILLISECONDS = 60_000


class _Interrupted(zmq.Socket):
    """SIGTERM comes after each frame that is not a message's last."""

    def send(self, data, flags=0, **options):
        super().send(data, flags, **options)
        if flags & zmq.SNDMORE:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def sockets():
    """A ROUTER and its peer, whose route is known."""
    context = zmq.Context()
    router = context.socket(zmq.ROUTER, socket_class=_Interrupted)
    peer = context.socket(zmq.DEALER)
    peer.routing_id = b"peer"
    peer.rcvtimeo = router.rcvtimeo = _RECEIVE_MILLISECONDS
    router.bind("inproc://frames")
    peer.connect("inproc://frames")
    peer.send(b"hello")
    assert router.recv_multipart() == [b"peer", b"hello"]
    yield router, peer
    context.destroy(linger=0)


def test_all_frames_are_sent_before_the_signal_counts(sockets):
    router, peer = sockets
    for text in (b"progress", b"failed"):
        with pytest.raises(signals.Interrupted, match="SIGTERM"), signals.raise_on_signals():
            send_frames(router, [b"peer", text])
        assert peer.recv_multipart() == [text]


def test_without_it_the_next_message_would_be_part_of_this_one(sockets):
    router, peer = sockets
    with pytest.raises(signals.Interrupted), signals.raise_on_signals():
        router.send_multipart([b"peer", b"progress"])
    with pytest.raises(signals.Interrupted), signals.raise_on_signals():
        send_frames(router, [b"peer", b"failed"])
    assert peer.recv_multipart() == [b"peer", b"failed"]
