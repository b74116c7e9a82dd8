"""Ring and queue: bounded by records and bytes, numbers without holes, what was lost is counted."""

from __future__ import annotations

import random
import threading

import msgspec
import pytest
from statsbus import wire
from statsbus.ledger import RECORD_OVERHEAD, Ledger


def fill(ledger, count, size=10, keys=None):
    ledger.pending.extend((keys, bytes(size)) for _ in range(count))
    ledger.absorb()


@pytest.mark.parametrize(
    "records, size, max_records, max_bytes, held",
    [
        (5, 10, 10, 1 << 20, 5),
        (25, 10, 10, 1 << 20, 10),
        (25, 36, 100, 1000, 10),  # 100 bytes each with its overhead
        (3, 2000, 100, 1000, 0),
        (7, 10, 1, 1 << 20, 1),
    ],
)
def test_the_ring_is_bounded_by_records_and_by_bytes(records, size, max_records, max_bytes, held):
    for at_once in (True, False):
        ledger = Ledger(max_records, max_bytes)
        for _ in range(1 if at_once else records):
            fill(ledger, records if at_once else 1, size)
        ring = ledger.ring
        assert ring.next == records + 1 and ring.next - ring.first == held
        assert ring.bytes == held * (size + RECORD_OVERHEAD) == ring.unapplied_bytes <= max_bytes
        assert ring.dropped == records - held


def test_records_that_the_agent_has_are_not_lost_when_they_leave():
    ledger = Ledger(10, 1 << 20)
    fill(ledger, 10)
    ledger.apply((bytes(16), [1, 4, 6, 8]))
    assert ledger.ring.applied_to == 4 and ledger.backlog() == (6, 6 * (10 + RECORD_OVERHEAD))
    fill(ledger, 10)
    assert ledger.ring.dropped == 3  # 5, 9, 10
    assert not ledger.has_applied(8) and ledger.has_applied(4)


def test_bytes_that_wait_for_the_agent_are_counted_right_whatever_happens():
    chance = random.Random(3)
    ledger, sizes = Ledger(50, 3000), [0]
    for _ in range(500):
        for _ in range(chance.randrange(20)):
            sizes.append(chance.choice((5, 10, 40, 200)))
            ledger.pending.append((None, bytes(sizes[-1])))
        ledger.absorb()
        ring = ledger.ring
        if ring.next > 1 and chance.random() < 0.3:
            ledger.apply((bytes(16), [1, chance.randrange(max(1, ring.applied_to), ring.next)]))
        held = range(ring.first, ring.next)
        assert ring.bytes == sum(sizes[n] + RECORD_OVERHEAD for n in held)
        assert ring.unapplied_bytes == sum(sizes[n] + RECORD_OVERHEAD for n in held if n > ring.applied_to)
        assert len(held) <= 50 and ring.bytes <= 3000


def test_a_piece_ends_at_its_limits():
    ledger = Ledger(100_000, 64 << 20)
    fill(ledger, 3)
    fill(ledger, 20_000)
    fill(ledger, 10, size=wire.PIECE_BYTES // 2 - 10)
    fill(ledger, 1, size=wire.RECORD_BYTES)
    at, seen = 1, []
    while at < ledger.ring.next:
        first, count, payload, at = ledger.piece(at, ledger.ring.next - 1)
        seen.extend(range(first, first + count))
        assert 0 < count <= wire.MESSAGE_RECORDS and len(payload) <= wire.MESSAGE_BYTES
        assert len(payload) <= wire.PIECE_BYTES + 5 or count == 1
    assert seen == list(range(1, ledger.ring.next))


@pytest.mark.parametrize("n", [0, 15, 16, 65535, 65536])
def test_array_headers_are_those_of_msgpack(n):
    assert msgspec.msgpack.decode(wire.array_header(n) + b"\x01" * n) == [1] * n


def test_the_latest_of_a_gauge_input_is_the_highest_numbered():
    ledger = Ledger(100, 1 << 20)
    for keys, record in (
        (0, b"a"),
        (1, b"b"),
        ((("obs", 0, "x"), ("obs", 0, "y")), b"c"),
        (0, b"d"),
        ((("obs", 0, "x"),), b"e"),
        (None, b"f"),
    ):
        ledger.pending.append((keys, record))
    ledger.absorb()
    assert ledger.latest() == [(2, b"b"), (3, b"c"), (4, b"d"), (5, b"e")]
    fill(ledger, 200)
    assert len(ledger.latest()) == 4  # also when the ring has moved on


def test_a_busy_ledger_does_not_hold_up_a_recording_thread():
    ledger = Ledger(100, 1 << 20)
    ledger.pending.append((None, b"a"))
    with ledger._lock:
        ledger.absorb(wait=False)
    assert ledger.ring.next == 1


def test_threads_that_absorb_at_once_number_each_record_once():
    ledger, threads = Ledger(1 << 20, 1 << 30), []
    for thread in range(4):
        records = [(None, b"%d:%d" % (thread, n)) for n in range(5000)]

        def work(records=records):
            for n, record in enumerate(records):
                ledger.pending.append(record)
                if n % 7 == 0:
                    ledger.absorb(wait=False)

        threads.append(threading.Thread(target=work))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger.absorb()
    _, records, at = ledger.ring.piece(1, 20_000)
    while at <= 20_000:
        _, more, at = ledger.ring.piece(at, 20_000)
        records += more
    for thread in range(4):
        mine = [record for record in records if record.startswith(b"%d:" % thread)]
        assert mine == [b"%d:%d" % (thread, n) for n in range(5000)]


@pytest.mark.parametrize(
    "lineage, ranges, good",
    [
        (bytes(16), [], True),
        (bytes(16), [1, 1], True),
        (bytes(16), [2, 3, 5, 100], True),
        (bytes(16), [1, 101], False),
        (bytes(16), [1, 3, 4, 5], False),
        (bytes(16), [3, 1], False),
        (bytes(16), [0, 1], False),
        (bytes(16), [1, 2.0], False),
        (bytes(16), [1, True], False),
        (bytes(16), [1, 2, 3], False),
        (bytes(15), [1, 2], False),
        ("a" * 16, [1, 2], False),
        (bytes(16), "x", False),
    ],
)
def test_a_mark_is_read_or_refused(lineage, ranges, good):
    assert (wire.read_mark(lineage, ranges, 100) is not None) == good


def test_what_is_discarded_is_not_taken_away_from_a_thread_that_numbers():
    ledger = Ledger(100, 1 << 20)
    ledger.pending.extend([(None, b"a")] * 3)
    with ledger._lock:
        assert ledger.discard() == 0 and len(ledger.pending) == 3
    assert ledger.discard() == 3 and not ledger.pending
