"""The other side of dicomm's RDMA transport, written with pyverbs and Python's library alone.

    python3 verbs_peer.py CARD ID KEY HOST PORT

ID, KEY, HOST, PORT: what the transport's process says of itself; see native/tests/test_verbs_peer.cc, which
sends back each message it gets. Names and layouts are those of native/src/base/handshake.h and
native/src/transport/verbs/frame.h. Meets it twice, once with the smaller id and once with the larger.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import random
import select
import socket
import struct
import sys
import time
from typing import Any

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

MESSAGE, MORE, OFFER, GRANT, GOODBYE, ACK = range(1, 7)  # FrameKind
SETUP, READY, PROVEN, CHANGE, DOWN, FRAME, PAYLOAD, FAREWELL = range(1, 9)  # RecordKind
FRAME_BYTES, FRAME_HEAD, HEADER_BYTES = 8192, struct.Struct("<HHII"), 64
FRAME_ROOM = FRAME_BYTES - FRAME_HEAD.size
FIRST_ROOM = FRAME_ROOM - HEADER_BYTES - 8
MAX_PORTS, MAX_QUEUE_PAIRS, SLOTS, PROBE = 4, 33, 16, 0xFFFFFFFF
MAX_PAYLOAD = 1 << 20
DEPTH = 16
PLACES = DEPTH + 8  # to receive into
FIRST_PLACE = DEPTH + 1  # behind frames to send, and one of acknowledgements
GID_INDEX = 1
CONTROL, BULK = 0, 1  # lanes, as the test's messages name them


def greet(to: socket.socket, key: bytes, own: bytes, target: bytes) -> None:
    """The client's half of the handshake."""

    def mac(word: bytes, *parts: bytes) -> bytes:
        return hmac.digest(key, word + hashlib.sha256(b"".join(parts)).digest(), "sha256")

    greeting = struct.pack("<6scBII16s", b"dicomm", b"t", 1, 0x01020304, 0, os.urandom(16))
    to.sendall(greeting)
    challenge = receive(to, 64)
    assert challenge[:8] == b"dicommt\1"
    assert hmac.compare_digest(challenge[32:], mac(b"server", greeting, challenge[:32]))
    hello = struct.pack("<16s16sIIQ64s", own, target, 0, 0, os.getpid(), b"pyverbs")
    proof = hello + mac(b"client", greeting, challenge, hello)
    to.sendall(proof)
    verdict = receive(to, 40)
    assert hmac.compare_digest(verdict[8:], mac(b"answer", greeting, challenge, proof, verdict[:8]))
    assert verdict[:4] == bytes(4), verdict


def receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


class Peer:
    def __init__(self, card: Any, connection: socket.socket, leads: bool) -> None:
        self.socket, self.leads = connection, leads
        self.domain = PD(card)
        self.queue = CQ(card, 400)
        self.memory = MR(self.domain, (FIRST_PLACE + PLACES) * FRAME_BYTES, e.IBV_ACCESS_LOCAL_WRITE)
        access = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
        self.outgoing = [MR(self.domain, MAX_PAYLOAD, access) for _ in range(SLOTS)]
        self.incoming = [MR(self.domain, MAX_PAYLOAD, access) for _ in range(SLOTS)]
        self.gid: str = card.query_gid(1, GID_INDEX).gid
        self.mtu = card.query_port(1).active_mtu
        self.pairs: list[QP] = []
        self.numbers = [0, 0]  # first packets' numbers
        self.epoch = 1 if leads else 0
        self.probes = 0
        self.proven = self.peer_proven = 0  # a bit per queue pair
        self.changed = self.peer_changed = False
        self.sent_frames = self.acked = self.received = self.told = 0
        self.early: list[bytes] = []
        self.waiting: list[bytes] = []  # frames (kind, body) for which the window is closed
        self.offered: dict[int, int] = {}  # sizes, by slot
        self.expected: dict[int, tuple[bytes, int]] = {}  # offers of theirs: header, size
        self.partial: tuple[bytes, int, bytes] | None = None
        self.echoes: dict[int, bytes] = {}
        self.farewell = False

    # ---- queue pairs ----

    def make(self, count: int) -> None:
        for _ in range(count):
            capacity = QPCap(DEPTH + 8, PLACES + 1, 1, 1)
            start = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.queue, rcq=self.queue, cap=capacity)
            self.pairs.append(QP(self.domain, start, self.attributes()))
        self.numbers = [random.randrange(1 << 24) for _ in self.pairs]
        for place in range(PLACES):
            self.post_place(place)
        for index in range(1, count):
            for _ in range(SLOTS + 1):
                self.post_payload(index)

    def attributes(self) -> QPAttr:
        attributes = QPAttr(port_num=1)
        attributes.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
        return attributes

    def post_place(self, place: int) -> None:
        where = SGE(self.memory.buf + (FIRST_PLACE + place) * FRAME_BYTES, FRAME_BYTES, self.memory.lkey)
        self.pairs[0].post_recv(RecvWR(wr_id=place, num_sge=1, sg=[where]))

    def post_payload(self, pair: int) -> None:
        self.pairs[pair].post_recv(RecvWR(wr_id=1000 + pair, num_sge=1, sg=[self.nothing()]))

    def connect(self, setup: bytes) -> None:
        count, depth, ports, _ = struct.unpack_from("<4I", setup)
        assert (count, ports) == (len(self.pairs), 1), setup[-260:]
        assert depth >= DEPTH
        gid, _, mtu, infiniband, _ = struct.unpack_from("<16sHBBI", setup, 16)
        assert not infiniband
        for index, qp in enumerate(self.pairs):
            number, first, port = struct.unpack_from("<3I", setup, 16 + 24 * MAX_PORTS + 12 * index)
            assert port == 0
            words = ":".join(f"{word:04x}" for word in struct.unpack(">8H", gid))
            route = GlobalRoute(dgid=GID(words), sgid_index=GID_INDEX, hop_limit=64)
            attributes = self.attributes()
            attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
            attributes.path_mtu = min(mtu, self.mtu)
            attributes.dest_qp_num, attributes.rq_psn, attributes.sq_psn = number, first, self.numbers[index]
            attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
            attributes.min_rnr_timer, attributes.timeout = 12, 18
            attributes.retry_cnt, attributes.rnr_retry = 6, 7
            qp.to_rts(attributes)

    def setup(self) -> bytes:
        port = struct.pack("<16sHBBI", socket.inet_pton(socket.AF_INET6, self.gid), 0, self.mtu, 0, 0)
        addresses = b"".join(
            struct.pack("<3I", qp.qp_num, first, 0)
            for qp, first in zip(self.pairs, self.numbers, strict=True)
        )
        head = struct.pack("<4I", len(self.pairs), DEPTH, 1, 0)
        return (
            head + port.ljust(24 * MAX_PORTS, b"\0") + addresses.ljust(12 * MAX_QUEUE_PAIRS, b"\0")
        ).ljust(768, b"\0")

    def prove(self) -> None:
        for qp in self.pairs:
            self.probes += 1
            self.post(qp, 2000, e.IBV_WR_RDMA_WRITE_WITH_IMM, self.nothing(), PROBE)

    def nothing(self) -> SGE:
        """Of a work request that brings only a slot. pyverbs posts none without memory."""
        return SGE(self.memory.buf, 0, self.memory.lkey)

    def post(self, qp: QP, work: int, opcode: int, where: SGE, slot: int = 0, remote: Any = (0, 0)) -> None:
        request = SendWR(wr_id=work, opcode=opcode, num_sge=1, sg=[where], send_flags=e.IBV_SEND_SIGNALED)
        if opcode == e.IBV_WR_RDMA_WRITE_WITH_IMM:
            request.imm_data = socket.htonl(slot)
            request.set_wr_rdma(*remote)
        qp.post_send(request)

    # ---- records ----

    def record(self, kind: int, body: bytes = b"") -> None:
        self.socket.sendall(struct.pack("<IIQ", kind, self.epoch, len(body)) + body)

    def on_record(self) -> None:
        kind, epoch, count = struct.unpack("<IIQ", receive(self.socket, 16))
        body = receive(self.socket, count)
        if kind == SETUP:
            assert len(body) == 768
            if not self.leads:
                self.epoch = epoch
                self.make(struct.unpack_from("<I", body)[0])
            self.connect(body)
            if self.leads:
                self.record(READY)
                self.prove()
            else:
                self.record(SETUP, self.setup())
            return
        assert kind == FAREWELL or epoch == self.epoch
        if kind == READY:
            self.prove()
        elif kind == PROVEN:
            self.peer_proven = struct.unpack("<Q", body)[0]
            self.change_over()
        elif kind == CHANGE:
            self.peer_changed = True
            for frame in self.early:
                self.on_frame(frame)
        elif kind == FAREWELL:
            self.farewell = True
        else:
            raise AssertionError(f"record {kind}: {body[8:]!r}")

    def change_over(self) -> None:
        # The pair for frames and one for payloads, both ways.
        if not self.changed and all(mask & 1 and mask > 1 for mask in (self.proven, self.peer_proven)):
            self.record(CHANGE)
            self.changed = True

    # ---- frames ----

    def frame(self, kind: int, body: bytes) -> None:
        self.waiting.append(struct.pack("<H", kind) + body)
        self.write_waiting()

    def write_waiting(self) -> None:
        while self.waiting and self.changed and self.sent_frames - self.acked < DEPTH:
            frame = self.waiting.pop(0)
            kind = struct.unpack_from("<H", frame)[0]
            self.write(kind, frame[2:], self.sent_frames % DEPTH)
            self.sent_frames += 1

    def write(self, kind: int, body: bytes, place: int) -> None:
        data = FRAME_HEAD.pack(kind, len(body), self.sent_frames, self.received) + body
        self.told = self.received
        self.memory.write(data, len(data), place * FRAME_BYTES)
        where = SGE(self.memory.buf + place * FRAME_BYTES, len(data), self.memory.lkey)
        self.post(self.pairs[0], 2001, e.IBV_WR_SEND, where)

    def on_frame(self, data: bytes) -> None:
        kind, count, number, acked = FRAME_HEAD.unpack_from(data)
        assert len(data) == FRAME_HEAD.size + count
        self.acked = acked
        if kind == ACK:
            return
        assert number == self.received
        self.received += 1
        body = data[FRAME_HEAD.size :]
        if kind == MESSAGE:
            size = struct.unpack_from("<Q", body, HEADER_BYTES)[0]
            self.partial = (body[:HEADER_BYTES], size, body[HEADER_BYTES + 8 :])
            self.end_of_message()
        elif kind == MORE:
            assert self.partial is not None
            header, size, payload = self.partial
            self.partial = (header, size, payload + body)
            self.end_of_message()
        elif kind == OFFER:
            size, slot, _ = struct.unpack_from("<QII", body, HEADER_BYTES)
            self.expected[slot] = (body[:HEADER_BYTES], size)
            into = self.incoming[slot]
            self.frame(
                GRANT,
                struct.pack(
                    "<IIIIQ", slot, self.epoch, 1 + slot % (len(self.pairs) - 1), into.rkey, into.buf
                ),
            )
        else:
            assert kind == GRANT, kind
            slot, epoch, pair, key, address = struct.unpack("<IIIIQ", body)
            assert epoch == self.epoch
            assert 0 < pair < len(self.pairs)
            where = SGE(self.outgoing[slot].buf, self.offered[slot], self.outgoing[slot].lkey)
            self.post(
                self.pairs[pair], 3000 + slot, e.IBV_WR_RDMA_WRITE_WITH_IMM, where, slot, (key, address)
            )

    def end_of_message(self) -> None:
        assert self.partial is not None
        header, size, payload = self.partial
        assert len(payload) <= size
        if len(payload) == size:
            self.partial = None
            self.on_message(header, payload)

    def on_message(self, header: bytes, payload: bytes) -> None:
        number = struct.unpack_from("<Q", header)[0]
        assert number not in self.echoes
        self.echoes[number] = payload

    # ---- messages ----

    def send(self, number: int, lane: int, payload: bytes) -> None:
        header = struct.pack("<QQ", number, lane).ljust(HEADER_BYTES, b"\x5a")
        if lane == BULK and len(payload) > FIRST_ROOM:
            slot = next(slot for slot in range(SLOTS) if slot not in self.offered)
            self.offered[slot] = len(payload)
            self.outgoing[slot].write(payload, len(payload))
            self.frame(OFFER, header + struct.pack("<QII", len(payload), slot, 0))
            return
        self.frame(MESSAGE, header + struct.pack("<Q", len(payload)) + payload[:FIRST_ROOM])
        for at in range(FIRST_ROOM, len(payload), FRAME_ROOM):
            self.frame(MORE, payload[at : at + FRAME_ROOM])

    def step(self) -> None:
        readable = select.select([self.socket], [], [], 0)[0]
        if readable:
            self.on_record()
        for completion in self.queue.poll(16)[1]:
            assert completion.status == e.IBV_WC_SUCCESS, completion
            work = completion.wr_id
            with_slot = bool(completion.wc_flags & e.IBV_WC_WITH_IMM)
            slot = socket.ntohl(completion.imm_data) if with_slot else 0
            if work == 2000:
                self.probes -= 1
                if self.probes == 0:
                    self.proven = (1 << len(self.pairs)) - 1
                    self.record(PROVEN, struct.pack("<Q", self.proven))
                    self.change_over()
            elif work >= 3000:
                del self.offered[work - 3000]
            elif 1000 < work < 2000:
                self.post_payload(work - 1000)
                if slot != PROBE:
                    header, size = self.expected.pop(slot)
                    self.on_message(header, self.incoming[slot].read(size, 0))
            elif work < 1000:
                if not with_slot:
                    data = self.memory.read(completion.byte_len, (FIRST_PLACE + work) * FRAME_BYTES)
                    if self.peer_changed:
                        self.on_frame(data)
                    else:
                        self.early.append(data)
                self.post_place(work)
        if self.changed and self.received - self.told >= DEPTH // 2:
            self.write(ACK, b"", DEPTH)
        self.write_waiting()


def meet(card: Any, key: bytes, target: bytes, address: tuple[str, int], leads: bool) -> None:
    connection = socket.create_connection(address, 20)
    own = bytes(16) if leads else b"\xff" * 16
    greet(connection, key, own, target)
    peer = Peer(card, connection, leads)
    if leads:
        peer.make(3)
        peer.record(SETUP, peer.setup())
    deadline = time.monotonic() + 40

    def step_until(done: Any) -> None:
        while not done():
            assert time.monotonic() < deadline, "not done in time"
            peer.step()

    chosen = random.Random(leads)
    sent: dict[int, bytes] = {}
    sizes = [0, 1, 300, FIRST_ROOM, FIRST_ROOM + 1, 100_000, MAX_PAYLOAD] * 2
    for number, size in enumerate(sizes):
        for lane in (CONTROL, BULK):
            if lane == CONTROL and size > 200_000:
                continue
            key_of = 2 * number + lane
            sent[key_of] = chosen.randbytes(size)
            peer.send(key_of, lane, sent[key_of])
            peer.step()
    step_until(lambda: len(peer.echoes) == len(sent))
    assert peer.echoes == sent
    peer.frame(GOODBYE, b"")
    step_until(lambda: peer.farewell)
    assert connection.recv(1) == b""
    connection.close()
    print(f"{'led' if leads else 'followed'}: {len(sent)} messages and their echoes")


if __name__ == "__main__":
    name, target, key, host, port = sys.argv[1:]
    with Context(name=name) as card:
        for leads in (True, False):
            meet(card, bytes.fromhex(key), bytes.fromhex(target), (host, int(port)), leads)
