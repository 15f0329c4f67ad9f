"""What `bpslaunch doctor` starts on each host: answers orders, and ends with its standard input.

An order is a line with a JSON object, and so is its answer. Nobody else can send orders: they come
through the pipe or the ssh connection that started this process.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from tf_byteps.doctor import facts, links
from tf_byteps.rendezvous.host import interface_address, route_address

MARK = "tf_byteps.doctor"  # in each answer: a shell's start-up files may print lines, too
_LIFE_SECONDS = 60  # more than any examination takes

_listeners: list[links.Listener] = []


def main() -> int:
    """Answers orders until standard input ends."""
    signal.alarm(_LIFE_SECONDS)  # ends this process, whatever hangs
    for line in sys.stdin:
        order = json.loads(line)
        answer: dict[str, Any] = {MARK: order["number"]}
        try:
            answer["value"] = _ORDERS[order["name"]](**order["arguments"])
        except (OSError, RuntimeError, ValueError) as error:
            answer["error"] = str(error)
        print(json.dumps(answer), flush=True)
    return 0


def _listen(towards: str, interface: str, ports: list[int]) -> dict[str, Any]:
    """Listens where a worker would: at the interface's address, or that towards the scheduler."""
    address = interface_address(interface) if interface else route_address(towards)
    listener = links.Listener(address, range(*ports))
    _listeners.append(listener)
    return {"address": address, "port": listener.port, "token": listener.token.hex()}


def _measure(address: str, port: int, token: str, seconds: float) -> dict[str, float]:
    return links.measure(address, port, bytes.fromhex(token), seconds)


_ORDERS: dict[str, Callable[..., Any]] = {
    "clock": time.time,
    "facts": facts.gather,
    "listen": _listen,
    "measure": _measure,
}

if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        sys.exit(main())
