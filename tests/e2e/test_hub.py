"""The hub alone, with agents played by this file over real sockets."""

from __future__ import annotations

import gzip
import os
import re
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
import zmq
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from daemons import Cluster, OPENMETRICS, follows_time, http_get, samples, wait_for

pytestmark = pytest.mark.sanitized

ENGINE = {"service_name": "s", "job_name": "j", "dp_rank": "0"}
IDENTITY = {"model_name": "m", "instance_id": "i-1", "role": "both"}
TOKENS, RUNNING, WAITS = 0, 1, 2
FAMILIES = [[0, "vllm:generation_tokens_total", "counter", None, None, None, None, None],
            [1, "vllm:num_requests_running", "gauge", None, None, None, None, None],
            [2, "e:wait_seconds", "histogram", "seconds", [0.5, 1.0], "Waits", "histogram", None]]
SERIES = [[TOKENS, 0, {}], [RUNNING, 1, {}], [WAITS, 2, {"why": 'a "b"\n\\'}]]


class FakeAgent:
    def __init__(self, endpoint: str, lineage: bytes = b"l" * 16) -> None:
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RECONNECT_IVL, -1)
        self.socket.connect(endpoint)
        self.lineage = lineage
        self.number = 0

    def close(self) -> None:
        self.socket.close()

    def send(self, *message: Any) -> None:
        self.socket.send(msgspec.msgpack.encode(list(message)))

    def receive(self, kind: str, limit_s: float = 10.0) -> list[Any]:
        """The next message of this kind; others (heartbeats) are passed over."""
        while self.socket.poll(limit_s * 1000):
            message = msgspec.msgpack.decode(self.socket.recv())
            if message[0] == kind:
                return message
        raise AssertionError(f"no {kind} within {limit_s} s")

    def greet(self, generation: int = 1) -> list[Any]:
        self.send("HELLO", 1, "node-a", self.lineage, generation, "test")
        return self.receive("WELCOME")

    def define(self, *contributions: list[Any]) -> None:
        self.send("DEFINE", FAMILIES, SERIES, list(contributions))

    def frame(self, cells: dict[int, float], gauges: dict[int, float] | None = None, contribution: int = 0,
              live: bool = True) -> None:
        self.number += 1
        gauges = gauges or {}
        self.send("FRAME", self.number, 7, contribution, 0, live,
                  struct.pack(f"<{len(gauges)}I", *gauges), struct.pack(f"<{len(gauges)}d", *gauges.values()),
                  struct.pack(f"<{len(cells)}I", *cells), struct.pack(f"<{len(cells)}d", *cells.values()))

    def settle(self) -> None:
        """Waits until the hub has applied everything sent so far."""
        while self.receive("ACK")[1] < self.number:
            pass


@contextmanager
def agent(cluster: Cluster, lineage: bytes = b"l" * 16) -> Iterator[FakeAgent]:
    fake = FakeAgent(cluster.hub_endpoint, lineage)
    try:
        yield fake
    finally:
        fake.close()


@contextmanager
def joined(cluster: Cluster, lineage: bytes = b"l" * 16, identity: dict[str, str] = IDENTITY) -> Iterator[FakeAgent]:
    with agent(cluster, lineage) as fake:
        fake.greet()
        fake.define([0, 1, "engine", ENGINE, identity])
        yield fake


def test_what_an_agent_sends_is_served_in_both_formats_and_views(cluster: Cluster) -> None:
    with joined(cluster) as fake:
        fake.frame({TOKENS: 12, WAITS: 1, WAITS + 1: 2, WAITS + 2: 0, WAITS + 3: 1.75}, {RUNNING: 3})
        fake.settle()
        for view, row in (("full", {"service_name": "s", "model_name": "m"}),
                          ("dp", {"service_name": "s", "model_name": "m", "dp_rank": "0", "role": "both", "instance_id": "i-1"})):
            for parse, accept in ((parse_text, "text/plain"), (parse_openmetrics, OPENMETRICS)):
                families = {f.name: f for f in parse(cluster.hub.metrics(view, accept))}
                counter = families["vllm:generation_tokens"]
                assert counter.type == "counter"
                assert [(s.name, s.labels, s.value) for s in counter.samples] == [("vllm:generation_tokens_total", row, 12)]
                gauge = families["vllm:num_requests_running"]
                assert [(s.labels, s.value) for s in gauge.samples] == [(row, 3)]
                waits = families["e:wait_seconds"]
                own = {**row, "why": 'a "b"\n\\'}
                assert {(s.name[len("e:wait_seconds"):], s.labels.get("le")): s.value for s in waits.samples} == {
                    ("_bucket", "0.5"): 1, ("_bucket", "1.0"): 3, ("_bucket", "+Inf"): 3, ("_sum", None): 1.75, ("_count", None): 3}
                assert all({k: v for k, v in s.labels.items() if k != "le"} == own for s in waits.samples)
        assert "statsbus_hub_" not in cluster.hub.metrics("dp")
        assert cluster.hub.sample("statsbus_hub_frames_total") == 1
        assert cluster.hub.sample("statsbus_hub_sources", state="live") == 1


def test_a_session_ends_with_the_reason_when_a_message_is_bad(cluster: Cluster) -> None:
    bad = [([b"\xc1"], "malformed"), ([msgspec.msgpack.encode(["FRAME", 1])], "type"), ([b"\x90", b"\x90"], "not_one_frame"),
           ([b"\x91" * 40 + b"\xc0"], "too_deep"), ([msgspec.msgpack.encode(["END", [99]])], "unknown_id")]
    for frames, reason in bad:
        with joined(cluster) as fake:
            fake.frame({TOKENS: 5})
            fake.settle()
            fake.socket.send_multipart(frames)
            fake.receive("REFUSED")
            assert cluster.hub.sample("statsbus_hub_refusals_total", reason=reason) == 1
            fake.send("FRAME")  # the session is over
            assert "no session" in fake.receive("REFUSED")[1]
    assert cluster.hub.sample("vllm:generation_tokens_total") == 5
    assert cluster.hub.sample("statsbus_hub_agents") == 0


def test_messages_over_the_limit_are_refused_and_far_over_it_cut_off(cluster: Cluster) -> None:
    with joined(cluster) as fake, joined(cluster, b"m" * 16) as other:
        other.frame({TOKENS: 1})
        other.settle()
        fake.socket.send(bytes(17 << 20))
        fake.receive("REFUSED")
        assert cluster.hub.sample("statsbus_hub_refusals_total", reason="too_large") == 1
        with agent(cluster) as huge:
            huge.socket.send(bytes(40 << 20))
            assert not huge.socket.poll(300)
        other.frame({TOKENS: 2})
        other.settle()
        assert cluster.hub.sample("statsbus_hub_refusals_total", reason="too_large") == 1


def test_an_agent_that_comes_back_repeats_everything_and_counts_nothing_twice(cluster: Cluster) -> None:
    for _ in range(3):
        with joined(cluster) as fake:
            fake.frame({TOKENS: 12}, {RUNNING: 3})
            fake.settle()
    assert cluster.hub.sample("vllm:generation_tokens_total") == 12
    assert cluster.hub.sample("vllm:num_requests_running") == 3
    with agent(cluster) as fake:
        assert fake.greet()[3] == 7


def test_a_silent_agent_takes_its_gauges_along(new_cluster: Any) -> None:
    cluster = new_cluster(hub_flags=["--agent-timeout", "2s"])
    with joined(cluster) as fake, joined(cluster, b"m" * 16, {**IDENTITY, "model_name": "n"}) as other:
        other.frame({TOKENS: 1}, {RUNNING: 5})
        other.settle()

        # Both are the same source: of its contributions the youngest is shown (by milliseconds), until its agent dies.
        def is_shown() -> bool:
            fake.frame({TOKENS: 12}, {RUNNING: 3})
            fake.settle()
            return cluster.hub.sample("vllm:num_requests_running") == 3

        wait_for(is_shown, "the youngest gauges are shown")

        def is_gone() -> bool:
            other.send("FRAME")
            return cluster.hub.sample("vllm:num_requests_running") != 3

        wait_for(is_gone, "gauges of the silent agent leave", every_s=0.2)
        assert cluster.hub.sample("vllm:num_requests_running", model_name="n") == 5
        assert cluster.hub.sample("vllm:num_requests_running", model_name="m") is None
        assert cluster.hub.sample("vllm:generation_tokens_total", model_name="m") == 12
        assert "silent" in fake.receive("REFUSED")[1]


def test_a_stopped_hub_that_goes_on_buries_nobody(new_cluster: Any) -> None:
    cluster = new_cluster(hub_flags=["--agent-timeout", "3s"])
    with joined(cluster) as fake:
        fake.frame({TOKENS: 12}, {RUNNING: 3})
        fake.settle()
        cluster.hub.send(signal.SIGSTOP)
        beats = 0

        def has_beaten() -> bool:
            nonlocal beats
            beats += 1
            fake.send("FRAME")
            return beats > 25

        wait_for(has_beaten, "five seconds of heartbeats", every_s=0.2)
        cluster.hub.send(signal.SIGCONT)
        for _ in range(3):
            assert fake.receive("ACK")[0] == "ACK"
            fake.send("FRAME")
            assert cluster.hub.sample("vllm:num_requests_running") == 3
        assert cluster.hub.sample("statsbus_hub_refusals_total") == 0


def test_http_says_what_is_wrong(cluster: Cluster) -> None:
    cases = [("/metrics?type=nosuch", 400, "full, instance, role, dp"), ("/metrics?color=red", 400, "color"), ("/metrics?type=full&type=dp", 400, "twice"),
             ("/nosuch", 404, ""), ("/healthz", 200, ""), ("/readyz", 200, ""), ("/", 200, "/metrics?type=dp")]
    for path, status, text in cases:
        got, _, body = cluster.hub.get(path)
        assert (got, text in body.decode()) == (status, True), path


def test_http_of_an_agent_says_what_is_wrong_as_a_hubs_does(cluster: Cluster) -> None:
    agent = cluster.add_node().agent
    cases = [("/metrics?type=full", 400, "type"), ("/metrics", 200, "statsbus_agent_hubs"), ("/nosuch", 404, ""), ("/readyz", 200, "ready"),
             ("/", 200, "/metrics")]
    for path, status, text in cases:
        got, _, body = agent.get(path)
        assert (got, text in body.decode()) == (status, True), path
    assert agent.get("/healthz")[2] == cluster.hub.get("/healthz")[2]
    assert agent.get("/")[2].startswith(b"statsbus-agent ")


def test_a_scrape_is_compressed_on_request(cluster: Cluster) -> None:
    with joined(cluster) as fake:
        fake.frame({TOKENS: 12})
        fake.settle()
        status, headers, body = cluster.hub.get("/metrics?type=dp", {"Accept-Encoding": "gzip"})
        assert status == 200 and headers["content-encoding"] == "gzip"
        assert "vllm:generation_tokens_total{" in gzip.decompress(body).decode()


def test_large_scrapes_come_whole_while_frames_arrive(cluster: Cluster) -> None:
    """Some 3 MB in pieces, with ingest between them: every row once, and the hub never stops acknowledging."""
    ranks = 1500
    with agent(cluster) as fake:
        fake.greet()
        fake.define(*([i, i + 1, "engine", {**ENGINE, "dp_rank": str(i)}, IDENTITY] for i in range(ranks)))
        for i in range(ranks):
            fake.frame({TOKENS: i, WAITS: 1, WAITS + 1: 1, WAITS + 2: 1, WAITS + 3: 0.5}, {RUNNING: i}, contribution=i)
        fake.settle()
        for _ in range(5):
            for i in range(200):
                fake.frame({TOKENS: 10_000 + i}, {RUNNING: 1}, contribution=i)
            text = cluster.hub.metrics("dp")
            lines = [sample for sample in samples(text) if not follows_time(sample[0])]
            assert len(lines) == len({(name, *sorted(labels.items())) for name, labels, _ in lines}) == ranks * 8
            assert len([name for name in re.findall(r"^# TYPE (\S+)", text, re.M) if not follows_time(name)]) == 4
        fake.settle()


def test_sigterm_and_sigint_end_it_well(new_cluster: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        cluster = new_cluster()
        with joined(cluster) as fake:
            fake.frame({TOKENS: 12})
            fake.settle()
            cluster.hub.send(number)
            cluster.hub.finish(10)


def test_a_peer_that_never_reads_does_not_stop_the_hub(cluster: Cluster) -> None:
    with joined(cluster) as deaf, joined(cluster, b"m" * 16) as fake:
        for _ in range(20_000):
            deaf.send("FRAME")
        for i in range(1, 200):
            fake.frame({TOKENS: i})
        fake.settle()
        assert cluster.hub.sample("vllm:generation_tokens_total") == 199


def test_settings_that_cannot_be_say_which(cluster: Cluster) -> None:
    program = os.fspath(cluster.binaries / "statsbus-hub")
    for flags, text in ((["--agents", "udp://x"], "--agents"), (["--http", "nowhere"], "--http"),
                        (["--agents", cluster.hub_endpoint, "--http", "127.0.0.1:0"], "--agents"), (["--agent-timeout", "1"], "agent-timeout")):
        done = subprocess.run([program, *flags], capture_output=True, text=True, timeout=20)
        assert done.returncode != 0 and text in done.stderr, (flags, done.stderr)


def test_garbage_does_not_reach_http(cluster: Cluster) -> None:
    """A port scan of the ROUTER, and HTTP spoken to it, change nothing."""
    for payload in (b"", b"GET / HTTP/1.0\r\n\r\n", os.urandom(4096)):
        with socket.create_connection(("127.0.0.1", cluster.agents_port)) as probe:
            probe.sendall(payload)
    assert http_get(cluster.hub.port or 0, "/healthz")[0] == 200
