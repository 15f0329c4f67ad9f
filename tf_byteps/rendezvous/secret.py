"""The job's secret, and the keys that follow from it.

The secret itself is never sent, and each use has a key of its own.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import stat
import typing

import zmq
from zmq.utils import z85

from tf_byteps.errors import BytePSError, ConfigError

if typing.TYPE_CHECKING:
    from tf_byteps.config import Config
    from tf_byteps.rendezvous.messages import Address, Book

MIN_BYTES = 16
_MAX_BYTES = 4096
_MAX_NAMED = 16  # of servers

_logger = logging.getLogger("tf_byteps")


def new_secret() -> str:
    """A random secret, as text."""
    return secrets.token_hex(32)


def job_secret(config: Config) -> str | None:
    """The secret that a process was given, or None.

    Raises:
        ConfigError: the configured file cannot be read or holds no secret.
    """
    if config.job_secret_file is not None:
        return read_secret_file(config.job_secret_file)
    return config.job_secret


def read_secret_file(path: str) -> str:
    """The secret in a file.

    Raises:
        ConfigError: it cannot be read or holds no secret.
    """
    try:
        with open(path, encoding="utf-8") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & (stat.S_IROTH | stat.S_IWOTH):
                _logger.warning("everybody can read or write %s: run chmod 600 on it", path)
            text = file.read(_MAX_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"BYTEPS_JOB_SECRET_FILE: cannot read {path} ({reason})") from None
    if len(text.encode()) < MIN_BYTES:
        raise ConfigError(
            f"BYTEPS_JOB_SECRET_FILE: {path} holds {len(text.encode())} bytes, but a secret must "
            f"have at least {MIN_BYTES}: fill it with 'openssl rand -hex 32'"
        )
    return text


def engine_key(secret: str | None) -> str:
    """What the engine's processes prove to each other that they know; "" without a secret."""
    return _derive(secret, "engine").hex() if secret else ""


def curve_keys(secret: str, side: str) -> tuple[bytes, bytes]:
    """A pair of CURVE keys, public and private.

    All who know the secret can compute both pairs: whoever has another one has other keys.

    Args:
        secret: the job's.
        side: "scheduler" or "participant".

    Raises:
        BytePSError: this ZeroMQ cannot encrypt.
    """
    if not zmq.has("curve"):
        raise BytePSError(
            f"this job has a secret, but ZeroMQ {zmq.zmq_version()} of pyzmq {zmq.__version__} was "
            f"built without CURVE: install pyzmq from its wheel"
        )
    private = z85.encode(_derive(secret, f"rendezvous {side}"))
    return zmq.curve_public(private), private


def _derive(secret: str, purpose: str) -> bytes:
    return hmac.digest(secret.encode(), b"tf_byteps " + purpose.encode(), "sha256")


def warn_of_open_ports(scheduler: Address, book: Book) -> None:
    """A job without a secret is everybody's who reaches it: says what is to be closed.

    Args:
        scheduler: where it listens.
        book: the job's, with all other addresses.
    """
    servers = list(map(str, book.server_endpoints[:_MAX_NAMED]))
    more = len(book.server_endpoints) - len(servers)
    servers += [f"{more} more"] if more else []
    _logger.warning(
        "this job has no secret: everybody who reaches its ports can take part in it, read its "
        "weights and end it (scheduler %s, coordinator %s, servers %s). See docs/security.md",
        scheduler,
        book.coordinator_endpoint,
        ", ".join(servers) or "none",
    )
