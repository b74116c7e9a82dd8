"""Plays a recording of a real vLLM engine through agent and hub (see scripts/demo)."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from daemons import CAPTURES, REPOSITORY, Cluster, DaemonError, Process, samples, wait_for

STREAM = CAPTURES / "plain" / "stream.bin.gz"
BUSY_STREAM = CAPTURES / "smallkv" / "stream.bin.gz"  # has requests waiting and a full cache to look at
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


def loop(cluster: Cluster) -> None:
    node = cluster.add_node()
    player = cluster.player(node, BUSY_STREAM, "--loop", speed="1")
    print(f"""
An engine's recording is playing, over and over, at its own speed: some seconds of load, then a rest. Look at:

  http://127.0.0.1:{cluster.hub.port}/metrics              the engine's numbers, summed over all engines of a service
  http://127.0.0.1:{cluster.hub.port}/metrics?type=dp      the same, engine by engine
  http://127.0.0.1:{node.agent.port}/metrics              the agent about itself
  {cluster.folder}    its logs

Ctrl-C stops everything.
""", flush=True)
    try:
        while not (ended := [p for p in (player, node.agent, cluster.hub) if not p.is_running()]):
            signal.sigtimedwait([], 0.5)  # a rest that a signal ends
        raise DaemonError(f"{ended[0].name} ended with {ended[0].poll()}; its log ends:\n{ended[0].log()[-2000:]}")
    except KeyboardInterrupt:
        print("\ndemo: stopping", flush=True)


def interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=Path, required=True, help="folder of statsbus-agent and statsbus-hub")
    parser.add_argument("--once", action="store_true", help="play the recording once, print some values, stop")
    args = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    try:
        with Cluster(args.bin) as cluster:
            (once if args.once else loop)(cluster)
    except DaemonError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
