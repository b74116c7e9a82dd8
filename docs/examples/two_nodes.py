"""The worked example of docs/views.md: six engines on two nodes say something once, then stay, then one of them ends.

    python docs/examples/two_nodes.py ENDPOINT_OF_AGENT_A ENDPOINT_OF_AGENT_B
"""

from __future__ import annotations

import sys
from typing import Any

from statsbus import Publisher

# node, instance, role, dp_rank, running, KV cache usage, tokens generated, tokens looked up, found, times to first token
ENGINES: list[tuple[str, str, str, str, int, float | None, int, int | None, int | None, list[float]]] = [
    ("a", "p-1", "prefill", "0", 1, 0.1, 3, 600, 180, [0.2, 0.2, 0.2]),
    ("a", "p-1", "prefill", "1", 2, 0.3, 2, 200, 20, [0.2, 0.2]),
    ("a", "d-1", "decode", "0", 4, 0.5, 40, None, None, [0.3, 0.6]),
    ("a", "d-1", "decode", "1", 2, 0.7, 20, None, None, [0.3]),
    ("b", "d-2", "decode", "0", 3, 0.9, 30, None, None, [0.6]),
    ("b", "d-2", "decode", "1", 0, None, 0, None, None, []),
]
POD_IP = {"p-1": "10.0.0.1", "d-1": "10.0.0.2", "d-2": "10.0.0.3"}
RACK = {"a": "r-7", "b": "r-8"}


def play(endpoints: dict[str, str]) -> dict[str, Publisher]:
    """One publisher for each instance, with a source for each dp rank; all have said everything. By instance."""
    publishers = {}
    for instance, pod_ip in POD_IP.items():
        ranks = [engine for engine in ENGINES if engine[1] == instance]
        node, _, role = ranks[0][:3]
        publishers[instance] = Publisher(
            [{"service_name": "chat", "model_name": "llama", "job_name": f"job-{instance}", "instance_id": instance, "role": role,
              "dp_rank": rank[3], "node": node, "pod_ip": pod_ip, "labels": {"rack": RACK[node]}} for rank in ranks],
            engines=endpoints[node])
        for index, rank in enumerate(ranks):
            say(publishers[instance], index, *rank[4:])
    for publisher in publishers.values():
        if not publisher.flush(timeout_s=30):
            raise SystemExit(f"no agent at {publisher.engines} takes the records")
    return publishers


def say(publisher: Publisher, index: int, running: int, usage: float | None, tokens: int, looked_up: int | None, found: int | None,
        first_tokens: list[float]) -> None:
    """One step. What the engine doesn't know is left out: that is not the same as 0."""
    scheduler: dict[str, Any] = {"num_running_reqs": running}
    if usage is not None:
        scheduler["kv_cache_usage"] = usage
    if looked_up is not None:
        scheduler["prefix_cache_stats"] = {"queries": looked_up, "hits": found}
    publisher.step(index, scheduler, {"num_generation_tokens": tokens, "time_to_first_tokens_iter": first_tokens})


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    publishers = play(dict(zip("ab", sys.argv[1:])))
    input("Six engines live. Enter ends d-1. ")
    publishers.pop("d-1").close()
    input("d-1 has ended. Enter ends all. ")
    for publisher in publishers.values():
        publisher.close()


if __name__ == "__main__":
    main()
