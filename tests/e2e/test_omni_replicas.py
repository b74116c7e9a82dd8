"""What waits in the schedulers of a stage is the sum over replicas that live: one that is removed is gone at once."""

from __future__ import annotations

from daemons import Cluster, samples, wait_for
from statsbus.omni import Pipeline

AT_ONCE_S = 3.0  # far below source_timeout, which is 15 s
WAITING = "vllm_omni:stage_waiting_requests"


def rows(cluster: Cluster, view: str, name: str) -> dict[tuple[str, ...], float]:
    """By stage, and replica where the view has it."""
    return {tuple(labels[key] for key in ("stage", "replica") if key in labels): value
            for each, labels, value in samples(cluster.hub.metrics(view)) if each == name}


def test_a_replica_that_is_removed_takes_its_waiting_requests_along_at_once(cluster: Cluster) -> None:
    node = cluster.add_node()
    pipeline = Pipeline("omni", {"service_name": "voice", "job_name": "j", "instance_id": "i"}, engines=node.engines, replay=node.replay)
    try:
        for stage, replica, waiting in ((0, 0, 3), (0, 1, 4), (1, 0, 5)):
            pipeline.stages.replica_added(stage, replica)
            pipeline.stages.step(stage, replica, {"num_running_reqs": 1, "num_waiting_reqs": waiting}, {"num_generation_tokens": 2})
        wait_for(lambda: rows(cluster, "stage", WAITING) == {("0",): 7, ("1",): 5}, "the sums of both stages")
        assert rows(cluster, "replica", WAITING) == {("0", "0"): 3, ("0", "1"): 4, ("1", "0"): 5}
        assert rows(cluster, "full", WAITING) == {(): 12}
        # One row has both engines' families.
        assert rows(cluster, "replica", "vllm:num_requests_running") == {("0", "0"): 1, ("0", "1"): 1, ("1", "0"): 1}

        pipeline.stages.replica_removed(0, 1)
        wait_for(lambda: rows(cluster, "stage", WAITING) == {("0",): 3, ("1",): 5}, "the removed one is gone", AT_ONCE_S)
        assert rows(cluster, "replica", WAITING) == {("0", "0"): 3, ("1", "0"): 5}
        wait_for(lambda: rows(cluster, "stage", "vllm:generation_tokens_total") == {("0",): 4, ("1",): 2}, "what it counted stays")
    finally:
        pipeline.close()
