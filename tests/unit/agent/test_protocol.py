"""Frames and messages: round trips, resynchronisation, bounds, order, and hostile bytes."""

from __future__ import annotations

import random
import time
import tracemalloc

import pytest

from runner.agent import protocol
from runner.agent.protocol import (
    ABORT,
    CONTROL,
    CREDIT,
    CREDIT_WINDOW,
    DATA,
    END,
    HEADER,
    MAGIC,
    MAX_PAYLOAD,
    MESSAGE,
    PADDING,
    PART,
    Assembler,
    Decoder,
    Frame,
    Outbox,
    ProtocolViolation,
    encode_frame,
    pack_message,
    unpack_message,
)
from tests.unit.agent.lab import repeat


def decode(data: bytes, step: int = 1 << 20) -> list[Frame]:
    decoder = Decoder()
    return [f for at in range(0, len(data), step) for f in decoder.feed(data[at : at + step])]


@pytest.mark.parametrize("step", [1, 7, 64, 1 << 20])
def test_frames_survive_any_cut(step: int) -> None:
    frames = [Frame(1, 0, MESSAGE, b"x"), Frame(2**32 - 1, 2**32 - 1, END, b""), Frame(3, 4, DATA, MAGIC * 20)]
    assert decode(b"".join(encode_frame(*f) for f in frames), step) == frames


def test_too_large_payload_is_refused() -> None:
    with pytest.raises(ValueError, match="too large"):
        encode_frame(1, 1, DATA, b"x" * (MAX_PAYLOAD + 1))


def test_garbage_between_frames_is_skipped() -> None:
    one, two = encode_frame(1, 1, DATA, b"a" * 100), encode_frame(1, 1, DATA, b"b")
    noise = random.Random(1).randbytes(5000)
    decoder = Decoder()
    assert [f.payload for f in decoder.feed(noise + one + noise + MAGIC[:3] + two)] == [b"a" * 100, b"b"]
    assert decoder.skipped >= 10_000


@pytest.mark.parametrize("cut", [1, 3, 4, 8, 12, 13, 17, 20, 21, 22, 5000, MAX_PAYLOAD])
def test_half_a_frame_and_padding_cost_only_that_frame(cut: int) -> None:
    half = encode_frame(7, 1, DATA, random.Random(2).randbytes(MAX_PAYLOAD))[:cut]
    whole = encode_frame(8, 0, MESSAGE, b"hello")
    assert decode(half + PADDING + whole, 4096) == [Frame(8, 0, MESSAGE, b"hello")]


def test_a_changed_bit_anywhere_is_noticed() -> None:
    good = encode_frame(1, 2, DATA, b"payload")
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        assert Frame(1, 2, DATA, b"payload") not in decode(bytes(bad) + PADDING)


def test_oversized_lengths_and_unknown_kinds_are_no_frames() -> None:
    for kind, length in [(DATA, MAX_PAYLOAD + 1), (DATA, 2**32 - 1), (0, 1), (7, 1), (255, 0)]:
        head = HEADER.pack(MAGIC, 1, 1, kind, length, 0)
        assert decode(head + encode_frame(1, 1, END)) == [Frame(1, 1, END, b"")]


def test_hostile_bytes_take_bounded_time_and_memory() -> None:
    evil = HEADER.pack(MAGIC, 1, 1, DATA, MAX_PAYLOAD, 0) * (8 << 20 >> 4)
    decoder = Decoder()
    began = time.process_time()
    tracemalloc.start()
    for at in range(0, len(evil), 1 << 16):
        assert not list(decoder.feed(evil[at : at + (1 << 16)]))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.process_time() - began < 5
    assert peak < 2 << 20


def test_decoder_and_messages_survive_random_bytes() -> None:
    source = random.Random(3)
    pieces = [MAGIC, encode_frame(1, 1, DATA, b"x"), pack_message({"a": 1}, (b"b",)), b"[" * 50, b'{"attached":[1]}']
    for _ in range(repeat(300)):
        data = b"".join(source.choice([source.randbytes(30), source.choice(pieces)]) for _ in range(9))
        decode(data, source.randrange(1, 99))
        try:
            body, attachments = unpack_message(data)
        except ProtocolViolation:
            continue
        assert isinstance(body, dict)
        assert all(isinstance(a, bytes) for a in attachments)


def test_messages_round_trip() -> None:
    body = {"op": "x", "text": "é\0中", "n": [1, None, 2.5]}
    assert unpack_message(pack_message(body, (b"", b"\0\xff"))) == (body, [b"", b"\0\xff"])
    assert unpack_message(pack_message({})) == ({}, [])


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\0\0\0", b"\0\0\0\2{", b"\0\0\0\1{", b"\0\0\0\2[]", b"\0\0\0\0", b"\xff\xff\xff\xff{}",
        b"\0\0\0\2{}x", *(b"\0\0\0" + bytes([len(t)]) + t for t in (
            b'{"attached":[1]}', b'{"attached":[-1]}', b'{"attached":1}', b'{"attached":[true]}', b"NaN", b'"\xff"')),
        (100_000).to_bytes(4, "big") + b"[" * 100_000,
        (protocol.MAX_JSON + 1).to_bytes(4, "big") + b" " * (protocol.MAX_JSON + 1),
    ],
)  # fmt: skip
def test_wrong_messages_are_violations(data: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        unpack_message(data)


def test_lone_surrogates_become_question_marks() -> None:
    body, _ = unpack_message(pack_message({"t": "a\udcffb", "k\ud800": ["\U0001f600"]}))
    assert body == {"t": "a?b", "k?": ["\U0001f600"]}


def test_assembler_joins_per_channel_and_is_bounded() -> None:
    assembler = Assembler(limit=100)
    packed = pack_message({"a": "b"})
    assert assembler.add(Frame(1, 1, PART, packed[:5])) is None
    assert assembler.add(Frame(1, 2, MESSAGE, packed)) == ({"a": "b"}, [])
    assert assembler.add(Frame(1, 1, MESSAGE, packed[5:])) == ({"a": "b"}, [])
    with pytest.raises(ProtocolViolation, match="too large"):
        assembler.add(Frame(1, 3, PART, b"x" * 101))


def test_control_overtakes_what_is_queued() -> None:
    outbox = Outbox(1)
    for _ in range(100):
        outbox.data(5, b"x" * (1 << 20))
    outbox.pull(1 << 18)
    outbox.message(CONTROL, {"op": "interrupt"})
    first = decode(outbox.pull(1))[0]
    assert (first.channel, unpack_message(first.payload)[0]) == (CONTROL, {"op": "interrupt"})


def test_channels_take_turns() -> None:
    outbox = Outbox(1)
    outbox.data(1, b"x" * (4 * MAX_PAYLOAD))
    outbox.data(2, b"y" * (4 * MAX_PAYLOAD))
    assert [f.channel for f in decode(outbox.pull(8 * MAX_PAYLOAD))] == [1, 2, 1, 2, 1, 2, 1, 2]


def test_credit_holds_back_and_is_capped() -> None:
    outbox = Outbox(1)
    outbox.data(1, b"x" * (3 * CREDIT_WINDOW))

    def sent() -> int:
        return sum(len(f.payload) for f in decode(outbox.pull(8 * CREDIT_WINDOW)))

    assert sent() == CREDIT_WINDOW
    assert sent() == 0
    outbox.credit(1, 1 << 31)
    assert sent() == CREDIT_WINDOW
    outbox.credit(99, 5)
    assert outbox.queued(1) == CREDIT_WINDOW
    outbox.close(1)
    assert (outbox.queued(1), outbox.pull(100)) == (0, b"")


def test_a_source_is_asked_within_credit_and_its_failure_aborts() -> None:
    outbox = Outbox(1)
    asked: list[int] = []

    def source(count: int) -> bytes:
        asked.append(count)
        if len(asked) > 20:
            raise OSError(5, "broken")
        return b"z" * count

    outbox.stream(1, source)
    frames = decode(outbox.pull(1 << 30))
    assert sum(len(f.payload) for f in frames) == CREDIT_WINDOW
    outbox.credit(1, CREDIT_WINDOW)
    last = decode(outbox.pull(1 << 30))[-1]
    assert (last.kind, last.payload) == (ABORT, b"broken")
    outbox.stream(2, lambda _: b"")
    assert [f.kind for f in decode(outbox.pull(100))] == [END]


def test_a_reset_sends_nothing_of_the_old_host() -> None:
    outbox = Outbox(1)
    outbox.data(1, b"old")
    outbox.message(CONTROL, {})
    outbox.grant(1, 5)
    outbox.reset(2)
    outbox.abort(3, "why")
    assert decode(outbox.pull(1 << 20)) == [Frame(2, 3, ABORT, b"why")]
    outbox.grant(1, 5)
    assert decode(outbox.pull(1 << 20)) == [Frame(2, 1, CREDIT, b"\0\0\0\5")]
