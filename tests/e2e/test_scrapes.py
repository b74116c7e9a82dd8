"""Clients that take a scrape slowly, and scrapes that need more memory than there may be."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from daemons import Cluster, Process, samples, wait_for
from wire_agent import WireAgent, packed

pytestmark = pytest.mark.sanitized

SCRAPES_MAX = 16
BOUNDS = 250
CELLS = BOUNDS + 3  # of a source: the counter, the histogram's buckets and +Inf, its sum
PAGES = -(-(CELLS + 2) // 64)
MIB = 1 << 20


@contextmanager
def pairs(cluster: Cluster, n: int) -> Iterator[WireAgent]:
    """2 n sources, two on each node: n rows of the view node that must be added up. The counter comes first in a scrape, and adds
    them all up; then comes a histogram of 25 KB a row."""
    agent = WireAgent(cluster, b"l" * 16)
    agent.connect()
    agent.send("DEFINE", [[0, "e:a_total", "counter", None, None, None, None, None],
                          [1, "e:b_seconds", "histogram", None, [float(i) for i in range(1, BOUNDS + 1)], None, None, None]],
               [[0, 0, {}], [1, 1, {}]],
               [[i, i + 1, "engine", {"service_name": "s", "job_name": "j", "dp_rank": str(i)},
                 {"model_name": "m", "instance_id": f"i-{i}", "role": "both", "node": f"node-{i // 2}"}] for i in range(2 * n)])
    ids, values = packed({cell: 1.0 for cell in range(CELLS)})
    for i in range(2 * n):
        agent.session.number += 1
        agent.send("FRAME", agent.session.number, 1, i, None, True, b"", b"", ids, values)
    agent.settle()
    try:
        yield agent
    finally:
        agent.drop()


class Slow:
    """A client that stops to read once it has seen a text. The server gives up on it 15 seconds later."""

    def __init__(self, hub: Process, view: str) -> None:
        assert hub.port is not None
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        self.socket.settimeout(20)
        self.socket.connect(("127.0.0.1", hub.port))
        self.socket.sendall(f"GET /metrics?type={view} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        self.got = b""

    def read_until(self, text: bytes) -> None:
        while text not in self.got:
            more = self.socket.recv(4096)
            assert more, f"the answer ends without {text!r}: {self.got[-300:]!r}"
            self.got += more

    def close(self) -> None:
        self.socket.close()


def answer(hub: Process, view: str) -> bytes:
    """All that comes, whole or not."""
    assert hub.port is not None
    with socket.create_connection(("127.0.0.1", hub.port), timeout=20) as client:
        client.sendall(f"GET /metrics?type={view} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: client.recv(1 << 20), b""))


def limit_hits(cluster: Cluster, limit: str) -> float:
    return cluster.hub.sample("statsbus_hub_limit_hits_total", "full&name[]=statsbus_hub_limit_hits_total", limit=limit) or 0


def resident_bytes(process: Process) -> int:
    with open(f"/proc/{process.pid}/status") as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def own(cluster: Cluster) -> dict[str, float]:
    """The hub's own metrics without labels, once a scrape is answered again."""
    def ask() -> str:
        status, _, body = cluster.hub.get("/metrics?type=full")
        return body.decode() if status == 200 else ""

    return {name: value for name, labels, value in samples(wait_for(ask, "a scrape is answered")) if not labels}


def test_slow_clients_hold_bounded_memory_and_the_rest_is_refused(cluster: Cluster) -> None:
    rows = 300  # 8 MB of text a client: far more than sockets buffer
    with pairs(cluster, rows), ExitStack() as stack:
        assert own(cluster)["statsbus_hub_scrape_bytes"] < 100_000
        before = resident_bytes(cluster.hub)
        for _ in range(SCRAPES_MAX):
            slow = Slow(cluster.hub, "node")
            stack.callback(slow.close)
            slow.read_until(b"e:b_seconds_bucket")
        for _ in range(5):
            status, _, body = cluster.hub.get("/metrics")
            assert status == 503 and body == b"too many scrapes at once\n"
        assert cluster.hub.get("/healthz")[0] == 200
        sums = rows * PAGES * 64 * 8
        assert resident_bytes(cluster.hub) - before < SCRAPES_MAX * (2 * sums + MIB)
        stack.close()
        wait_for(lambda: own(cluster)["statsbus_hub_scrapes_open"] == 1, "their scrapes end")
        assert limit_hits(cluster, "scrapes") >= 5
        assert own(cluster)["statsbus_hub_scrape_bytes"] < 100_000


def test_while_slow_clients_hold_half_of_the_memory_for_sums_no_scrape_begins(new_cluster: Any) -> None:
    cluster = new_cluster(hub_flags=["--scrape-memory-max", "4MiB"])
    rows = 300
    sums = rows * PAGES * 64 * 8
    with pairs(cluster, rows), ExitStack() as stack:
        n = 2 * MIB // sums + 1
        for _ in range(n):
            slow = Slow(cluster.hub, "node")
            stack.callback(slow.close)
            slow.read_until(b"e:b_seconds_bucket")
        status, _, body = cluster.hub.get("/metrics")
        assert status == 503 and b"scrape_memory_max" in body
        stack.close()
        assert own(cluster)["statsbus_hub_scrape_bytes_max"] == 4 * MIB
        assert limit_hits(cluster, "scrape_memory") >= 1


def test_a_scrape_over_the_memory_for_sums_is_cut_visibly(new_cluster: Any) -> None:
    cluster = new_cluster(hub_flags=["--scrape-memory-max", "1MiB"])
    rows = 700  # 1.4 MB of sums
    with pairs(cluster, rows):
        cut = answer(cluster.hub, "node")
        assert cut.startswith(b"HTTP/1.1 200") and not cut.endswith(b"\r\n0\r\n\r\n")
        assert limit_hits(cluster, "scrape_memory") == 1
        whole = answer(cluster.hub, "dp")  # rows of one source need no sums
        assert whole.endswith(b"\r\n0\r\n\r\n") and whole.count(b"\ne:a_total{") == 2 * rows
