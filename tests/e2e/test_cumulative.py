"""Totals that a process counts itself, over its restarts: MindIE-PyMotor's timeline T0 to T3, and where its rule has holes.

T0 10000, T1 11000, the engine restarts (ins_id 5 becomes 12), T2 50, T3 500: the effective counter is 10000, 11000, 11050, 11500. Beside
the counter a histogram makes the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from statsbus import Publisher

from daemons import Cluster, Node, wait_for

pytestmark = pytest.mark.sanitized

PLACE = {"service_name": "chat", "model_name": "tiny", "job_name": "decoder-0", "dp_rank": "0", "role": "decode", "node": "node-a",
         "pod_ip": "10.0.0.2", "stage": "1", "replica": "0"}
SHARED_VIEWS = ("full", "role", "node", "pod", "stage", "replica", "rank")  # those that don't print instance_id
TOKENS, PAUSE = "e:generation_tokens_total", "e:pause_seconds"
FAMILIES = [{"name": TOKENS, "type": "counter", "cumulative": True, "labels": ["kind"]},
            {"name": PAUSE, "type": "histogram", "buckets": [0.5, 2], "cumulative": True}]


class Told:
    """What an engine shows of itself: tokens, and a pause of 0.25, 1 and 4 s for every 8, 4 and 2 of ten tokens."""

    def __init__(self, tokens: float) -> None:
        self.tokens = tokens
        small, middle, large = tokens * 8, tokens * 4, tokens * 2
        self.buckets = [small, small + middle, small + middle + large]
        self.sum = small * 0.25 + middle + large * 4

    def observations(self) -> list[tuple[str, Any, Any]]:
        return [(TOKENS, {"kind": "new"}, self.tokens), ("process_cpu_seconds_total", None, self.tokens / 4),
                (PAUSE, None, {"le": [0.5, 2], "buckets": self.buckets, "sum": self.sum})]


def expected(tokens: float) -> dict[str, float]:
    """Every sample, once `tokens` were counted in all."""
    told = Told(tokens)
    return {TOKENS: told.tokens, "process_cpu_seconds_total": told.tokens / 4, f"{PAUSE}_count": told.buckets[2], f"{PAUSE}_sum": told.sum,
            **{f"{PAUSE}_bucket le={le}": n for le, n in zip(("0.5", "2.0", "+Inf"), told.buckets)}}


def shown(cluster: Cluster, view: str, **labels: str) -> dict[str, float | None]:
    text = {name: cluster.hub.sample(name.split(" ")[0], view, **labels, **dict([name.split(" ")[1].split("=")] if " " in name else []))
            for name in expected(0)}
    return text


def check(cluster: Cluster, tokens: float, views: tuple[str, ...] = SHARED_VIEWS, **labels: str) -> None:
    wait_for(lambda: cluster.hub.sample(TOKENS, views[0], **labels) == tokens, f"{views[0]} shows {tokens}")
    for view in views:
        assert shown(cluster, view, **labels) == expected(tokens), view


@pytest.fixture
def with_ranks(new_cluster: Callable[..., Cluster], tmp_path: Path) -> Cluster:
    """With a view of the identity that PyMotor calls stable."""
    views = tmp_path / "views.yaml"
    views.write_text("version: 1\nviews:\n  rank: {by: [job_name, dp_rank]}\n")
    return new_cluster(hub_flags=["--views", str(views)])


@pytest.fixture
def publish() -> Iterator[Callable[..., Publisher]]:
    with ExitStack() as stack:
        def make(node: Node, instance: str, **source: Any) -> Publisher:
            made = Publisher([{**PLACE, "instance_id": instance, **source}], engines=node.engines, families=FAMILIES, batch_s=0.01)
            stack.callback(made.close, timeout_s=1.0)
            return made
        yield make


def restart_of_the_process(node: Node, publish: Callable[..., Publisher], before: Publisher) -> tuple[Publisher, int]:
    """The engine publishes itself; its successor is another publisher."""
    before.close(ended=False)
    return publish(node, "12"), 0


def restart_behind_a_reader(node: Node, publish: Callable[..., Publisher], before: Publisher) -> tuple[Publisher, int]:
    """A sidecar reads the engine's totals and sees that it is another one."""
    before.end(0)
    return before, before.add_source({**PLACE, "instance_id": "12"})


def restart_that_nobody_tells_of(node: Node, publish: Callable[..., Publisher], before: Publisher) -> tuple[Publisher, int]:
    """The instance_id stays; only the totals say it."""
    return before, 0


@pytest.mark.parametrize("restart", [restart_of_the_process, restart_behind_a_reader, restart_that_nobody_tells_of])
def test_pymotors_timeline_in_every_view(with_ranks: Cluster, publish: Callable[..., Publisher], restart: Callable[..., tuple[Publisher, int]]) -> None:
    cluster = with_ranks
    node = cluster.add_node()
    publisher, source = publish(node, "5"), 0
    publisher.observe(source, Told(10000).observations())
    check(cluster, 10000)
    publisher.observe(source, Told(11000).observations())
    check(cluster, 11000)
    publisher, source = restart(node, publish, publisher)
    publisher.observe(source, Told(50).observations())
    check(cluster, 11050)
    publisher.observe(source, Told(500).observations())
    check(cluster, 11500)
    if restart is restart_that_nobody_tells_of:
        check(cluster, 11500, ("instance", "dp"), instance_id="5")
    else:
        check(cluster, 11000, ("instance", "dp"), instance_id="5")
        check(cluster, 500, ("instance", "dp"), instance_id="12")
    assert node.agent.sample("statsbus_agent_totals_left_out_total") == 0


def test_a_fall_of_any_size_is_a_restart(with_ranks: Cluster, publish: Callable[..., Publisher]) -> None:
    publisher = publish(with_ranks.add_node(), "5")
    for total, effective in ((10000, 10000), (9900, 19900), (10000, 20000), (9000, 29000), (9000, 29000), (0, 29000), (0, 29000), (9000, 38000)):
        publisher.observe(0, Told(total).observations())
        assert publisher.flush()
        check(with_ranks, effective)


def test_an_agent_that_is_killed_or_loses_its_state_counts_no_total_twice(with_ranks: Cluster, publish: Callable[..., Publisher]) -> None:
    node = with_ranks.add_node()
    publisher = publish(node, "5")
    publisher.observe(0, Told(100).observations())
    check(with_ranks, 100)
    for is_lost, total in ((False, 130), (True, 170), (False, 200)):
        node.agent.kill()
        if is_lost:
            node.state.unlink()
        publisher.observe(0, Told(total).observations())
        node.agent.start().wait_ready()
        check(with_ranks, total)
    publisher.observe(0, Told(20).observations())
    check(with_ranks, 220)
    assert node.agent.sample("statsbus_agent_state_losses_total") == 1


def test_a_reader_that_is_restarted_counts_nothing_twice(with_ranks: Cluster, publish: Callable[..., Publisher]) -> None:
    node = with_ranks.add_node()
    reader = publish(node, "5", counted_by="engine since 17.5")
    reader.observe(0, Told(100).observations())
    check(with_ranks, 100)
    reader.close()
    reader = publish(node, "5", counted_by="engine since 17.5")
    wait_for(lambda: reader.observe(0, Told(120).observations()) or with_ranks.hub.sample(TOKENS) == 120, "the new reader is listened to")
    check(with_ranks, 120)
    another = publish(node, "5", counted_by="engine since 99.25")
    another.observe(0, Told(7).observations())
    check(with_ranks, 127)
