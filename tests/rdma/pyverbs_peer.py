"""A peer of the RDMA Van that shares no code with it: Python's sockets and struct, and pyverbs.

    python tests/rdma/pyverbs_peer.py PORT DEVICE

It connects to a Van that sends every frame back (cc/van/rdma/peer_test.cc), as a worker would:
handshake and offers over TCP, then frames by RDMA. It checks what comes back, byte by byte, and
that the Van gives room back and takes it.
"""

import os
import pathlib
import socket
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tf_byteps.rdma.pyverbs_module import Verbs

_PROTOCOL_VERSION = 7
_RDMA_FEATURE = 2
_PUSH, _CONTROL, _ROOM_RETURNED, _MORE = 1, 4, 8, 11
_HEADER_BYTES = 128
_SLOTS, _SLOT_PAYLOAD_BYTES, _SENDS = 16, 256 * 1024, 32
_SLOT_BYTES = _HEADER_BYTES + _SLOT_PAYLOAD_BYTES
_SEND_BYTES = 4096
_RECEIVES = 2 * (_SLOTS + _SENDS)
_GID_INDEX = 1
_PATIENCE_SECONDS = 60
_WRITES_AT_ONCE = 4
_PIECE_BYTES = 512 * 1024
# magic, type, codec, status, place, epoch, key, part, variant, round, placement version, worker,
# priority, elements, rows, payload's bytes, offset and address, credit, watermark, three times
_HEADER = struct.Struct("<IBBBBIQIIQIiiQQQQQQQqqq")
_HEADER_MAGIC = 0x31535042
_OFFER_MAGIC, _OFFER_VERSION = 0x52535042, 3
# After the text: slots, a slot's payload, sends, queue pair, packet sequence, MTU, LID, Ethernet,
# GID, where the slots are, their key
_OFFER_END = struct.Struct("<IIIIIiHB16sQI")


def header(kind, payload_bytes, part=0, elements=0, rows=0):
    """The 128 bytes of a frame's header."""
    fields = (0, 0, 0, 1, 0, part, 0, 0, 0, 0, 0, elements, rows, payload_bytes)
    packed = _HEADER.pack(_HEADER_MAGIC, kind, *fields, 0, 0, 0, 0, 0, 0, 0)
    return packed.ljust(_HEADER_BYTES, b"\0")


def parse(data):
    """Kind, part, elements, rows and payload's bytes of a header."""
    fields = _HEADER.unpack(data[: _HEADER.size])
    assert fields[0] == _HEADER_MAGIC, fields
    assert fields[3] == 0 and fields[4] == 0, fields  # status and place
    return fields[1], fields[7], fields[13], fields[14], fields[15]


def in_slots(part, payload):
    """What the slots of a push hold: a header, where one is due, and bytes of the payload."""
    for begin in range(0, len(payload), _PIECE_BYTES):
        piece = payload[begin : begin + _PIECE_BYTES]
        ahead = header(_MORE, len(piece)) if begin else header(_PUSH, len(payload), part)
        for offset in range(0, len(piece), _SLOT_PAYLOAD_BYTES):
            yield ahead, piece[offset : offset + _SLOT_PAYLOAD_BYTES]
            ahead = b""


def pattern(part, size):
    """A payload that differs from part to part."""
    return bytes((part * 7 + i * 13 + (i >> 8)) % 256 for i in range(min(size, 65536))) * (
        size // 65536 + 1
    )


# What ends a connection: no header, half of one, another length, room that nobody has taken.
_MALFORMED = [
    b"\xff" * _HEADER_BYTES,
    header(_PUSH, 0)[: _HEADER_BYTES // 2],
    header(_CONTROL, 77),
    header(_ROOM_RETURNED, 0, elements=1),
]


class Tcp:
    """The connection that comes first."""

    def __init__(self, port):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_SECONDS)
        hello = struct.pack("<IHQQIBi", 0x48535042, _PROTOCOL_VERSION, _RDMA_FEATURE, 0, 1, 0, 0)
        hello += os.urandom(16) + struct.pack("<I", 3) + b"job"
        self._socket.sendall(hello.ljust(160, b"\0"))
        challenge = self._read(512)
        magic, version, status = struct.unpack_from("<IHB", challenge)
        assert (magic, version, status) == (0x43535042, _PROTOCOL_VERSION, 0), challenge[:20]
        [features] = struct.unpack_from("<Q", challenge, 4 + 2 + 1 + 4 + 400)
        assert features & _RDMA_FEATURE, features
        self._socket.sendall(struct.pack("<Iqq", 0x52535042, 0, 0).ljust(64, b"\0"))
        magic, version, status = struct.unpack_from("<IHB", self._read(512))
        assert (magic, version, status) == (0x57535042, _PROTOCOL_VERSION, 0)

    def send(self, payload):
        self._socket.sendall(header(_CONTROL, len(payload)) + payload)

    def receive(self):
        kind, _, _, _, size = parse(self._read(_HEADER_BYTES))
        assert kind == _CONTROL and size < 4096, (kind, size)
        return self._read(size)

    def close(self):
        self._socket.close()

    def expect_end(self):
        """The Van hangs up."""
        assert self._socket.recv(1) == b""

    def _read(self, size):
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            assert piece, "the Van has hung up"
            data += piece
        return data


class Pair:
    """A queue pair, its memory, and what the Van must know of them."""

    def __init__(self, device):
        self._verbs = verbs = Verbs()
        print(f"pyverbs with {verbs.generation}", flush=True)
        enums = verbs.enums
        self._context = verbs.device.Context(name=device)
        self._port = self._context.query_port(1)
        self._domain = verbs.pd.PD(self._context)
        self._completions = verbs.cq.CQ(self._context, 4 * _RECEIVES)
        # Slots that the Van writes to, slots to write from, receives, one buffer to send from.
        self._own_slots = _SLOTS * _SLOT_BYTES
        self._receives = 2 * self._own_slots
        self._send_buffer = self._receives + _RECEIVES * _SEND_BYTES
        access = enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE
        self._memory = verbs.mr.MR(self._domain, self._send_buffer + _SEND_BYTES, access)
        cap = verbs.qp.QPCap(max_send_wr=64, max_recv_wr=_RECEIVES)
        wanted = verbs.qp.QPInitAttr(
            qp_type=enums.IBV_QPT_RC, scq=self._completions, rcq=self._completions, cap=cap
        )
        self._pair = verbs.qp.QP(self._domain, wanted)
        self._next_slot = 0
        self._next_to_come = 0

    def offer(self):
        gid = self._context.query_gid(1, _GID_INDEX).gid
        end = _OFFER_END.pack(
            _SLOTS,
            _SLOT_PAYLOAD_BYTES,
            _SENDS,
            self._pair.qp_num,
            0,
            self._port.active_mtu,
            self._port.lid,
            1,
            bytes.fromhex(gid.replace(":", "")),
            self._memory.buf,
            self._memory.rkey,
        )
        return struct.pack("<IHBI", _OFFER_MAGIC, _OFFER_VERSION, 0, 0) + end

    def connect(self, offer):
        magic, version, status, text = struct.unpack_from("<IHBI", offer)
        assert (magic, version, status, text) == (_OFFER_MAGIC, _OFFER_VERSION, 0, 0), offer
        [slots, slot, sends, number, sequence, mtu, lid, ethernet, gid, address, key] = (
            _OFFER_END.unpack(offer[11:])
        )
        assert (slots, slot, sends, ethernet) == (_SLOTS, _SLOT_PAYLOAD_BYTES, _SENDS, 1)
        self._peer_slots, self._peer_key = address, key
        verbs = self._verbs
        attributes = verbs.qp.QPAttr(port_num=1)
        attributes.dest_qp_num = number
        attributes.rq_psn = sequence
        attributes.sq_psn = 0
        attributes.path_mtu = min(mtu, self._port.active_mtu)
        attributes.qp_access_flags = verbs.enums.IBV_ACCESS_REMOTE_WRITE
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
        attributes.min_rnr_timer, attributes.timeout = 12, 16
        attributes.retry_cnt = attributes.rnr_retry = 6
        text = ":".join(gid.hex()[i : i + 4] for i in range(0, 32, 4))
        route = verbs.addr.GlobalRoute(dgid=verbs.addr.GID(text), sgid_index=_GID_INDEX)
        attributes.ah_attr = verbs.addr.AHAttr(port_num=1, is_global=1, gr=route, dlid=lid)
        self._pair.to_rts(attributes)
        for index in range(_RECEIVES):
            self._post_receive(index)

    def send(self, data):
        """A frame by a send."""
        self._memory.write(data, len(data), self._send_buffer)
        self._post(self._verbs.enums.IBV_WR_SEND, self._send_buffer, len(data))
        self._wait_for(None)

    def push(self, part, payload, returned=0):
        """A frame by writes, of which the Van is told of every fourth and of the last; `returned`:
        slots that it gets back with the last."""
        slots = list(in_slots(part, payload))
        for number, (begin, data) in enumerate(slots, start=1):
            slot = self._next_slot
            self._next_slot = (slot + 1) % _SLOTS
            offset = slot * _SLOT_BYTES + (0 if begin else _HEADER_BYTES)
            data = begin + data
            self._memory.write(data, len(data), self._own_slots + offset)
            opcode, immediate = self._verbs.enums.IBV_WR_RDMA_WRITE, 0
            is_last = number == len(slots)
            if is_last or number % _WRITES_AT_ONCE == 0:
                opcode = self._verbs.enums.IBV_WR_RDMA_WRITE_WITH_IMM
                immediate = socket.htonl(slot | (returned << 16 if is_last else 0))
            place = self._own_slots + offset
            self._post(opcode, place, len(data), immediate, self._peer_slots + offset)
            self._wait_for(None)

    def receive(self):
        """The next thing that has come: ("send", bytes), or ("slots", the slots in their order, the
        length of the last one, how many of this side's slots come back)."""
        completion = self._wait_for("receive")
        index = completion.wr_id
        if completion.opcode == self._verbs.enums.IBV_WC_RECV:
            data = self._memory.read(completion.byte_len, self._receives + index * _SEND_BYTES)
            self._post_receive(index)
            return "send", data
        message = socket.ntohl(completion.imm_data)
        last, returned = message & 0xFFFF, message >> 16
        assert last < _SLOTS, last
        slots = [self._next_to_come]
        while slots[-1] != last:
            slots.append((slots[-1] + 1) % _SLOTS)
        assert len(slots) <= _WRITES_AT_ONCE, slots
        self._next_to_come = (last + 1) % _SLOTS
        self._post_receive(index)
        return "slots", slots, completion.byte_len, returned

    def read_slot(self, slot, size, has_header):
        offset = slot * _SLOT_BYTES + (0 if has_header else _HEADER_BYTES)
        return self._memory.read(size, offset)

    def _wait_for(self, what):
        """A completion of a receive, or of what was posted last (None); the other kind is kept."""
        waiting = self.__dict__.setdefault("_found", [])
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            for completion in waiting:
                is_receive = completion.opcode >= self._verbs.enums.IBV_WC_RECV
                if is_receive == (what is not None):
                    waiting.remove(completion)
                    return completion
            count, found = self._completions.poll(16)
            for completion in found:
                assert completion.status == 0, f"status {completion.status}"
            waiting.extend(found)
            if count == 0:
                time.sleep(0.001)
        raise AssertionError(f"nothing has come in {_PATIENCE_SECONDS} s")

    def _post(self, opcode, offset, size, immediate=0, address=None):
        verbs = self._verbs
        piece = verbs.wr.SGE(self._memory.buf + offset, size, self._memory.lkey)
        signaled = verbs.enums.IBV_SEND_SIGNALED
        request = verbs.wr.SendWR(
            num_sge=1, sg=[piece], opcode=opcode, send_flags=signaled, imm_data=immediate
        )
        if address is not None:
            request.set_wr_rdma(self._peer_key, address)
        self._pair.post_send(request)

    def _post_receive(self, index):
        place = self._memory.buf + self._receives + index * _SEND_BYTES
        piece = self._verbs.wr.SGE(place, _SEND_BYTES, self._memory.lkey)
        self._pair.post_recv(self._verbs.wr.RecvWR(wr_id=index, num_sge=1, sg=[piece]))


class Echoes:
    """What comes back."""

    def __init__(self, pair):
        self._pair = pair
        self.taken = 0
        self.slots_returned = self.sends_returned = self.reported = 0

    def _next(self):
        """The next thing but room that the Van gives back."""
        while True:
            what = self._pair.receive()
            if what[0] == "slots":
                self.reported += 1
                self.slots_returned += what[3]
                return what
            kind, _, slots, sends, _ = parse(what[1])
            if kind != _ROOM_RETURNED:
                return what
            assert slots + sends > 0
            self.slots_returned += slots
            self.sends_returned += sends

    def expect_greeting(self):
        kind, data = self._pair.receive()
        frame, _, slots, sends, size = parse(data)
        assert (kind, frame, slots, sends, size) == ("send", _ROOM_RETURNED, 0, 0, 0), data

    def expect_control(self, payload):
        kind, data = self._next()
        assert kind == "send" and data == header(_CONTROL, len(payload)) + payload, data

    def expect_push(self, part, payload):
        expected = list(in_slots(part, payload))
        while expected:
            kind, slots, last_size, _ = self._next()
            assert kind == "slots"
            for slot in slots:
                ahead, data = expected.pop(0)
                if ahead:
                    got = self._pair.read_slot(slot, _HEADER_BYTES, True)
                    assert parse(got) == parse(ahead), (parse(got), parse(ahead))
                assert self._pair.read_slot(slot, len(data), False) == data, f"part {part}"
                self.taken += 1
            assert last_size == len(ahead) + len(data), (last_size, len(ahead), len(data))

    def give_back(self):
        """By a message of its own."""
        self._pair.send(header(_ROOM_RETURNED, 0, elements=self.taken))
        self.taken = 0


def connect():
    """A connection whose ends have greeted each other."""
    tcp = Tcp(int(sys.argv[1]))
    pair = Pair(sys.argv[2])
    tcp.send(pair.offer())
    pair.connect(tcp.receive())
    tcp.send(pair.offer())  # ready
    echoes = Echoes(pair)
    pair.send(header(_ROOM_RETURNED, 0))
    echoes.expect_greeting()
    return tcp, pair, echoes


def main():
    exchange()
    for data in _MALFORMED:
        tcp, pair, _ = connect()
        pair.send(data)
        tcp.expect_end()
        tcp.close()
    print(f"{len(_MALFORMED)} malformed frames ended their connections")


def exchange():
    tcp, pair, echoes = connect()
    text = b"a control frame of pyverbs"
    pair.send(header(_CONTROL, len(text)) + text)
    echoes.expect_control(text)
    # One slot, several, and all of the ring more than twice.
    sizes = [1, 100_000, _SLOT_PAYLOAD_BYTES, 600_001, 6 * _SLOT_PAYLOAD_BYTES] + [1000] * 30
    for part, size in enumerate(sizes):
        payload = pattern(part, size)[:size]
        # In turns with the push, and by a message of its own.
        returned = echoes.taken if part % 2 else 0
        echoes.taken -= returned
        pair.push(part, payload, returned)
        echoes.expect_push(part, payload)
        if echoes.taken >= _SLOTS // 2:
            echoes.give_back()
    slots = sum(-(-size // _SLOT_PAYLOAD_BYTES) for size in sizes)
    assert echoes.slots_returned >= slots - _SLOTS // 2, echoes.slots_returned
    assert echoes.reported < slots, echoes.reported
    print(
        f"{len(sizes)} frames came back, {echoes.slots_returned} slots were given back; "
        f"reported {echoes.reported} times of {slots} slots"
    )
    tcp.close()


if __name__ == "__main__":
    main()
