"""Plays recordings of real vLLM engines through agents and a hub (see scripts/demo)."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from daemons import CAPTURES, REPOSITORY, Cluster, DaemonError, Process, samples, wait_for
from demo_cluster import HUB_FLAGS, Demo
from watch import EVERY_S, Screen, Terminal, ends_by_signals, rest
from watch_view import WINDOW_S

STREAM = CAPTURES / "plain" / "stream.bin.gz"
UP_S, DOWN_S = 30.0, 4.0  # how long the engine that restarts now and then runs, and is away
SHOWN = [
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:prefix_cache_hits_total",
    "vllm:request_success_total",
    "vllm:time_to_first_token_seconds_count",
    "vllm:time_to_first_token_seconds_sum",
    "vllm:e2e_request_latency_seconds_count",
    "vllm:e2e_request_latency_seconds_sum",
]


def show(hub: Process) -> None:
    print("\nWhat the engine's numbers are at the hub's /metrics:\n")
    for name, labels, value in samples(hub.metrics("full")):
        if name in SHOWN:
            text = ",".join(f'{k}="{v}"' for k, v in labels.items())
            print(f"  {name}{{{text}}} {value:.15g}")
    print("\nEverything stops now; scripts/demo without --once keeps it running, to look at it with a browser.", flush=True)


def once(cluster: Cluster) -> None:
    node = cluster.add_node()
    print("demo: replaying", STREAM.relative_to(REPOSITORY), "as fast as it goes", flush=True)
    cluster.player(node, STREAM).finish()
    # The player ends when the agent has applied everything; the hub has it a commit later. Two equal looks are the end.
    looks: list[list[tuple[str, dict[str, str], float]]] = [[]]

    def is_settled() -> bool:
        looks.append([s for s in samples(cluster.hub.metrics("full")) if s[0].startswith("vllm:")])
        return bool(looks[-1]) and looks[-1] == looks[-2]

    wait_for(is_settled, "the hub shows the recording's numbers", every_s=1.2)
    show(cluster.hub)


def pages(cluster: Cluster, demo: Demo) -> list[str]:
    """What to open, one a line."""
    found = {f"http://127.0.0.1:{cluster.hub.port}/metrics": "the hub; ?type=role, node, instance, dp"}
    for node in cluster.nodes:
        found[f"http://127.0.0.1:{node.agent.port}/metrics"] = f"the agent of {node.name} about itself"
    if demo.prometheus:
        found[f"http://127.0.0.1:{demo.prometheus.port}/graph"] = "Prometheus: vllm:... and instance:vllm:..."
    width = max(map(len, found))
    return [*(f"  {page:{width}}  {what}" for page, what in found.items()), f"  logs are in {cluster.folder}"]


def play(cluster: Cluster, up_s: float, with_prometheus: bool) -> None:
    """Until a signal comes: in a terminal the table, otherwise only the pages to open."""
    demo = Demo(cluster, up_s, DOWN_S, time.monotonic())
    if with_prometheus:
        demo.start_prometheus()
    above = ["statsbus: 2 nodes, 4 engines (recordings), 1 of them restarts. Ctrl-C ends it.",
             f"Quantiles are of all since the start, rates of {WINDOW_S:.0f} s; - is what nobody said."]
    below = pages(cluster, demo)
    try:
        if not sys.stdout.isatty():
            print("\n".join([*above, *below]), flush=True)
            while True:
                demo.step(time.monotonic())
                rest(EVERY_S)
        with Terminal() as terminal:
            screen = Screen(terminal, f"127.0.0.1:{cluster.hub.port}")
            while True:
                demo.step(time.monotonic())
                screen.refresh(above, below)
                rest(EVERY_S)
    except KeyboardInterrupt:
        print("demo: stopping", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=Path, required=True, help="folder of statsbus-agent and statsbus-hub")
    parser.add_argument("--once", action="store_true", help="play the recording once, print some values, stop")
    parser.add_argument("--prometheus", action="store_true", help="start Prometheus, too, which is installed here")
    parser.add_argument("--up", type=float, default=UP_S, metavar="S", help="seconds between restarts of prefill-1 (default: %(default)g)")
    args = parser.parse_args()
    ends_by_signals()
    try:
        with Cluster(args.bin, HUB_FLAGS) as cluster:
            if args.once:
                once(cluster)
            else:
                play(cluster, args.up, args.prometheus)
    except DaemonError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
