"""The Unix sockets at which processes answer bpstop on their own host.

Every process has one, in Linux's abstract namespace: it takes neither a port nor a file, it ends
with its process, and /proc/net/unix lists it. Its name says whose it is, but anybody may take any
name; so both sides look at the user whom the kernel names.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import pathlib
import re
import secrets
import socket
import struct
import typing
from collections.abc import Mapping, Sequence
from typing import ClassVar

if typing.TYPE_CHECKING:
    from tf_byteps.config import Config

_SOCKETS = pathlib.Path("/proc/net/unix")
# Address, references, protocol, flags, type, state, inode. The whole line must match: strangers
# write what they like into the names of theirs.
_LINE = re.compile(
    r"\S+: [0-9A-F]+ [0-9A-F]+ ([0-9A-F]+) [0-9A-F]+ [0-9A-F]+ +[0-9]+ "
    r"@tf_byteps/([0-9]{1,10})/([0-9a-f]{16})/([0-9]{1,10})-([0-9a-f]{8})"
)
_LISTENS = 0x10000  # __SO_ACCEPTCON of the kernel: connections have the same name
_CREDENTIALS = struct.Struct("iII")
# Processes of two containers may have the same number, and see each other's sockets.
_TOKEN = secrets.token_hex(4)
_ROOT = 0


@dataclasses.dataclass(frozen=True)
class LocalJob:
    """A job with processes on this host.

    Attributes:
        user: the number of the user whose it is.
        key: what all its processes have in common.
    """

    user: int
    key: str

    @property
    def number(self) -> int:
        """The key as a number of 48 bits, which is the same in a page of metrics."""
        return int(self.key[:12], 16)


@dataclasses.dataclass(frozen=True)
class LocalSocket:
    """Where a process answers.

    Attributes:
        job: whose process it is.
        process: its number.
        token: tells it from those with the same number in other containers.
    """

    job: LocalJob
    process: int
    token: str
    host: ClassVar = "localhost"

    @property
    def name(self) -> str:
        """As `socket.bind` takes it."""
        return f"\0tf_byteps/{self.job.user}/{self.job.key}/{self.process}-{self.token}"

    def __str__(self) -> str:
        return f"process {self.process}"

    @property
    def is_genuine(self) -> bool:
        """Whether a process of the job's user has this name."""
        try:
            self.connect().close()
        except OSError:
            return False
        return True

    def connect(self) -> socket.socket:
        """A connection to the process; does not wait.

        Raises:
            BlockingIOError: it is there, and has not looked for a while who connects.
            OSError: it is not there, or is another user's.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            connection.connect(self.name)
            if peer_user(connection) != self.job.user:
                raise PermissionError(errno.EACCES, "another user has this name")
        except BaseException:
            connection.close()
            raise
        return connection


def own_socket(config: Config) -> LocalSocket:
    """That of this process.

    What processes of a job surely agree on is its ID, or else the scheduler's port: each may know
    the scheduler by another name or address.

    Args:
        config: the `Config` of this process; a scheduler's with the port that it has.
    """
    job = f"process {os.getpid()}"
    if config.distributed:
        port = config.scheduler_port
        job = config.job_id or (f"port {port}" if port else job)
    key = hashlib.blake2b(job.encode(), digest_size=8).hexdigest()  # a name has 107 bytes at most
    return LocalSocket(LocalJob(os.geteuid(), key), os.getpid(), _TOKEN)


def peer_user(connection: socket.socket) -> int:
    """The number of the user at the other end of a Unix socket, as the kernel knows it."""
    size = _CREDENTIALS.size
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return _CREDENTIALS.unpack(credentials)[1]


def local_jobs() -> Mapping[LocalJob, Sequence[LocalSocket]]:
    """The jobs on this host whose processes answer this user: root gets all, others their own.

    That is what names say. `LocalSocket.connect` finds out whether it is true.
    """
    try:
        lines = _SOCKETS.read_text(errors="replace").splitlines()
    except OSError:  # no /proc
        return {}
    user = os.geteuid()
    jobs: dict[LocalJob, list[LocalSocket]] = {}
    for line in lines:
        found = _LINE.fullmatch(line)
        if found is None or not int(found[1], 16) & _LISTENS:
            continue
        job = LocalJob(int(found[2]), found[3])
        if user in (job.user, _ROOT):
            jobs.setdefault(job, []).append(LocalSocket(job, int(found[4]), found[5]))
    return {job: sorted(sockets, key=lambda s: s.process) for job, sockets in jobs.items()}
