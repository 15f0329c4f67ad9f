"""Bandwidth and latency of RDMA between two hosts, measured with pyverbs.

One host serves, the other connects to it by TCP; they tell each other what two queue pairs need to
know, as the engine does. Then the client writes into the server's memory, and they send a small
message back and forth.
"""

import json
import socket
import time
from typing import Any

from tf_byteps.errors import BytePSError
from tf_byteps.rdma.pyverbs_module import Verbs

PORT = 18515
_MESSAGE_BYTES = 256 * 1024
_DEPTH = 16
_SMALL_BYTES = 8
_PATIENCE_SECONDS = 30
_GID_INDEXES = 16  # that are looked at
_TIMEOUT, _RETRIES, _RNR_TIMER = 16, 6, 12


class Endpoint:
    """A queue pair with its memory.

    Args:
        device: the RDMA device's name.
        port: its port.
        gid_index: entry of its table of GIDs; None: the first one with an IPv4 address, else 0.
    """

    def __init__(self, device: Any, port: int = 1, gid_index: int | None = None) -> None:
        self._verbs: Any = Verbs()
        verbs = self._verbs
        enums = verbs.enums
        self._port = port
        self._context = verbs.device.Context(name=device)
        self._attributes = self._context.query_port(port)
        if self._attributes.state != enums.IBV_PORT_ACTIVE:
            raise BytePSError(f"port {port} of {device} is not active")
        self._is_ethernet = self._attributes.link_layer == enums.IBV_LINK_LAYER_ETHERNET
        self._gid_index = self._find_gid() if gid_index is None else gid_index
        self._domain = verbs.pd.PD(self._context)
        self._completions = verbs.cq.CQ(self._context, 4 * _DEPTH)
        access = enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE
        self.memory = verbs.mr.MR(self._domain, _MESSAGE_BYTES * _DEPTH, access)
        cap = verbs.qp.QPCap(max_send_wr=2 * _DEPTH, max_recv_wr=_DEPTH)
        attributes = verbs.qp.QPInitAttr(
            qp_type=enums.IBV_QPT_RC, scq=self._completions, rcq=self._completions, cap=cap
        )
        self._pair = verbs.qp.QP(self._domain, attributes)

    def address(self) -> dict[Any, Any]:
        """What the other end must know, as a dict that JSON can hold."""
        return {
            "queue_pair": self._pair.qp_num,
            "gid": self._gid(self._gid_index),
            "lid": self._attributes.lid,
            "mtu": self._attributes.active_mtu,
            "memory": self.memory.buf,
            "key": self.memory.rkey,
        }

    def connect(self, peer: Any) -> None:
        """Connects to the end whose address is `peer`."""
        verbs = self._verbs
        attributes = verbs.qp.QPAttr(port_num=self._port)
        attributes.dest_qp_num = peer["queue_pair"]
        attributes.path_mtu = min(peer["mtu"], self._attributes.active_mtu)
        attributes.qp_access_flags = verbs.enums.IBV_ACCESS_REMOTE_WRITE
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
        attributes.min_rnr_timer = _RNR_TIMER
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = (
            _TIMEOUT,
            _RETRIES,
            _RETRIES,
        )
        route = verbs.addr.GlobalRoute(dgid=verbs.addr.GID(peer["gid"]), sgid_index=self._gid_index)
        attributes.ah_attr = verbs.addr.AHAttr(
            port_num=self._port, is_global=int(self._is_ethernet), gr=route, dlid=peer["lid"]
        )
        self._pair.to_rts(attributes)
        self._peer = peer

    def write(self, slot: int) -> None:
        """Begins to write one piece of this end's memory to the same piece of the other's."""
        verbs = self._verbs
        offset = slot * _MESSAGE_BYTES
        piece = verbs.wr.SGE(self.memory.buf + offset, _MESSAGE_BYTES, self.memory.lkey)
        request = verbs.wr.SendWR(
            num_sge=1,
            sg=[piece],
            opcode=verbs.enums.IBV_WR_RDMA_WRITE,
            send_flags=verbs.enums.IBV_SEND_SIGNALED,
        )
        request.set_wr_rdma(self._peer["key"], self._peer["memory"] + offset)
        self._pair.post_send(request)

    def send(self) -> None:
        """Sends a small message."""
        verbs = self._verbs
        piece = verbs.wr.SGE(self.memory.buf, _SMALL_BYTES, self.memory.lkey)
        request = verbs.wr.SendWR(
            num_sge=1,
            sg=[piece],
            opcode=verbs.enums.IBV_WR_SEND,
            send_flags=verbs.enums.IBV_SEND_SIGNALED,
        )
        self._pair.post_send(request)

    def receive(self) -> None:
        """Makes room for a small message."""
        verbs = self._verbs
        piece = verbs.wr.SGE(self.memory.buf, _SMALL_BYTES, self.memory.lkey)
        self._pair.post_recv(verbs.wr.RecvWR(num_sge=1, sg=[piece]))

    def wait(self, count: Any) -> None:
        """Waits until so many requests have been completed."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while count > 0:
            found, completions = self._completions.poll(count)
            for completion in completions:
                if completion.status != self._verbs.enums.IBV_WC_SUCCESS:
                    raise BytePSError(
                        f"RDMA failed with status {completion.status} (12: the other host cannot "
                        f"be reached by RDMA, though it is by TCP)"
                    )
            count -= found
            if time.monotonic() > deadline:
                raise BytePSError(f"nothing was completed for {_PATIENCE_SECONDS} s")

    def _gid(self, index: int) -> Any:
        return self._context.query_gid(self._port, index).gid

    def _find_gid(self) -> Any:
        for index in range(min(self._attributes.gid_tbl_len, _GID_INDEXES)):
            if self._gid(index).startswith("0000:0000:0000:0000:0000:ffff:"):
                return index
        return 0


def serve(device: Any, gid_index: int | None = None, host: str = "", port: int = PORT) -> None:
    """Takes part in one check, as the host that is connected to.

    Args:
        device: the RDMA device's name.
        gid_index: see `Endpoint`.
        host: address to listen on. Default: all.
        port: TCP port to listen on.
    """
    with socket.create_server((host, port)) as listener:
        connection, _ = listener.accept()
    with connection, connection.makefile("rw") as stream:
        connection.settimeout(_PATIENCE_SECONDS)
        end = Endpoint(device, gid_index=gid_index)
        peer = _read(stream)
        end.connect(peer)
        for _ in range(_DEPTH):
            end.receive()
        _write(stream, end.address())
        rounds = _read(stream)["rounds"]
        for _ in range(rounds):
            end.wait(1)  # the message
            end.receive()
            end.send()
            end.wait(1)  # its own has left
        last = end.memory.read(4, _MESSAGE_BYTES * _DEPTH - 4)
        _write(stream, {"last": last.hex()})


def connect(
    device: Any,
    host: str,
    port: int = PORT,
    gid_index: int | None = None,
    megabytes: int = 256,
    rounds: int = 200,
) -> dict[Any, Any]:
    """Checks the way to a host that serves.

    Args:
        device: the RDMA device's name.
        host: name or address of the host.
        port: its TCP port.
        gid_index: see `Endpoint`.
        megabytes: how much is written.
        rounds: how often a small message goes there and back.

    Returns:
        A dict with "bandwidth" (bytes a second) and "latency" (seconds, one way).

    Raises:
        BytePSError: it cannot be reached, or what arrived is not what was written.
    """
    try:
        connection = socket.create_connection((host, port), timeout=_PATIENCE_SECONDS)
    except OSError as error:
        raise BytePSError(
            f"no check is served at {host}:{port} ({error}); run python -m tf_byteps.rdma --serve "
            f"there"
        ) from error
    with connection, connection.makefile("rw") as stream:
        end = Endpoint(device, gid_index=gid_index)
        pattern = b"\xa5\x5a\x00\xff"
        end.memory.write(pattern, len(pattern), _MESSAGE_BYTES * _DEPTH - len(pattern))
        _write(stream, end.address())
        end.connect(_read(stream))
        messages = max(_DEPTH, megabytes * (1 << 20) // _MESSAGE_BYTES)
        began = time.perf_counter()
        for number in range(messages):
            if number >= _DEPTH:
                end.wait(1)
            end.write(number % _DEPTH)
        end.wait(_DEPTH)
        bandwidth = messages * _MESSAGE_BYTES / (time.perf_counter() - began)
        for _ in range(_DEPTH):
            end.receive()
        _write(stream, {"rounds": rounds})
        began = time.perf_counter()
        for _ in range(rounds):
            end.send()
            end.wait(2)  # it has left, and the answer is there
            end.receive()
        latency = (time.perf_counter() - began) / rounds / 2
        if _read(stream)["last"] != pattern.hex():
            raise BytePSError(f"what {host} received is not what was written")
    return {"bandwidth": bandwidth, "latency": latency}


def _write(stream: Any, message: Any) -> None:
    stream.write(json.dumps(message) + "\n")
    stream.flush()


def _read(stream: Any) -> Any:
    line = stream.readline()
    if not line:
        raise BytePSError("the other host has hung up; it says why")
    return json.loads(line)
