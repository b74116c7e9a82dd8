#!/usr/bin/env python3
"""
What the vLLM plugin costs the engine's thread, beside vLLM's own Prometheus logger in the same run.

usage: vllm_cost.py [--model DIR] [--check] [--quick]

With vLLM installed: its own classes and logger, configured for the model in DIR. Otherwise objects of the same shape, and a
logger that observes the same families with prometheus_client. Two ways of stepping: 2 ms apart, as an engine does between
two batches, and in a tight loop longer than anything that the plugin may put off. Time is that of the engine's thread; what the whole process
spends is shown beside it. --check: exit 1 when a ratio is below its limit.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "publisher" / "python"), str(ROOT / "tests"), str(ROOT / "publisher" / "python" / "tests")]

# batch: how many times cheaper at least, 2 ms apart and in a tight loop
LIMITS = {1: (2.0, 5.0), 256: (12.0, 50.0), 1024: (40.0, 100.0)}
SHOWN = (1, 8, 64, 256, 1024)
STEPS = 50  # made for each batch, and gone through again and again
FINISHED = 3  # requests that end in the last of them
GAP_S = 0.002
BLOCK = 50  # steps of the one logger, then of the other
Record = Callable[[Any, Any], None]


def drain(engines: str, replay: str, is_bound: Any) -> None:
    """An agent's sockets, in a process of their own: takes what comes and says nothing."""
    import zmq

    context = zmq.Context()
    poller = zmq.Poller()
    for kind, endpoint in ((zmq.SUB, engines), (zmq.ROUTER, replay)):
        socket = context.socket(kind)
        socket.bind(endpoint)
        if kind == zmq.SUB:
            socket.setsockopt(zmq.SUBSCRIBE, b"")
        poller.register(socket, zmq.POLLIN)
    is_bound.set()
    while True:
        for socket, _ in poller.poll():
            socket.recv_multipart()


class Classes:
    """vLLM's stats classes, or stand-ins."""

    def __init__(self, scheduler: Any, iteration: Any, finished: Any, reason: Any, prefix: Any) -> None:
        self.scheduler, self.iteration, self.finished, self.reason, self.prefix = scheduler, iteration, finished, reason, prefix

    def steps(self, batch: int) -> list[tuple[Any, Any]]:
        """Decoding steps: one latency for each request, nearly equal ones, and now and then requests that end."""
        chooser = random.Random(batch)
        out = []
        for number in range(STEPS):
            iteration = self.iteration()
            latency = 0.02 + chooser.random() / 100
            iteration.num_generation_tokens = batch
            iteration.inter_token_latencies_iter = [latency + n * 1e-12 for n in range(batch)]
            scheduler = self.scheduler(num_running_reqs=batch, num_waiting_reqs=2, kv_cache_usage=0.3 + chooser.random() / 10)
            if number == STEPS - 1:
                for request in range(min(FINISHED, batch)):
                    iteration.finished_requests.append(self.finished(
                        finish_reason=self.reason, request_id=f"cmpl-{number}-{request}", e2e_latency=3.0 + chooser.random(),
                        num_prompt_tokens=512, num_generation_tokens=128, max_tokens_param=128, queued_time=0.004,
                        prefill_time=0.05, inference_time=3.0, decode_time=2.9, mean_time_per_output_token=0.023,
                        num_cached_tokens=64))
                    iteration.max_num_generation_tokens_iter.append(128)
                    iteration.n_params_iter.append(1)
                    iteration.time_to_first_tokens_iter.append(0.05 + chooser.random() / 10)
                scheduler.prefix_cache_stats = self.prefix(requests=FINISHED, queries=512 * FINISHED, hits=64 * FINISHED)
            out.append((scheduler, iteration))
        return out


def real(model: str) -> tuple[Classes, Record, Any]:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine import FinishReason
    from vllm.v1.metrics.loggers import PrometheusStatLogger
    from vllm.v1.metrics.stats import FinishedRequestStats, IterationStats, PrefixCacheStats, SchedulerStats

    config = EngineArgs(model=model, served_model_name="tiny", max_model_len=1024, enforce_eager=True, block_size=32,
                        load_format="dummy").create_engine_config()
    classes = Classes(SchedulerStats, IterationStats, FinishedRequestStats, FinishReason.LENGTH, PrefixCacheStats)
    return classes, as_vllm_calls(PrometheusStatLogger(config, [0])), config


def stand_ins() -> tuple[Classes, Record, Any]:
    import vllm_peer

    return Classes(*vllm_peer.CLASSES), vllm_peer.record, vllm_peer.config()


def as_vllm_calls(logger: Any) -> Record:
    def record(scheduler: Any, iteration: Any) -> None:
        logger.record(scheduler, iteration, mm_cache_stats=None, engine_idx=0)

    return record


def paced(record: Record, steps: list[tuple[Any, Any]], count: int) -> list[int]:
    """ns of each call, with a pause before it in which the caches fill with other things."""
    out = []
    for number in range(count):
        scheduler, iteration = steps[number % STEPS]
        time.sleep(GAP_S)
        start = time.perf_counter_ns()
        record(scheduler, iteration)
        out.append(time.perf_counter_ns() - start)
    return out


def tight(record: Record, steps: list[tuple[Any, Any]], count: int) -> tuple[float, float]:
    """us of the thread, and of the whole process, for a call."""
    start, process_start = time.thread_time_ns(), time.process_time_ns()
    for number in range(count):
        scheduler, iteration = steps[number % STEPS]
        record(scheduler, iteration)
    return (time.thread_time_ns() - start) / count / 1000, (time.process_time_ns() - process_start) / count / 1000


def measure(own: Record, ours: Record, steps: list[tuple[Any, Any]], is_quick: bool) -> dict[str, tuple[float, float]]:
    """us of vLLM's logger and of ours, by way of measuring. The two take turns, so that both meet the same machine."""
    rounds = 2 if is_quick else 6
    apart: dict[Record, list[int]] = {own: [], ours: []}
    spent: dict[Record, list[float]] = {own: [], ours: []}
    for _ in range(rounds):
        for record in (own, ours):
            process_start = time.process_time_ns()
            apart[record] += paced(record, steps, BLOCK)
            spent[record].append((time.process_time_ns() - process_start) / BLOCK / 1000)
    loops: dict[Record, list[tuple[float, float]]] = {own: [], ours: []}
    counts = {own: 200 if is_quick else 400, ours: 4000}
    for _ in range(rounds):
        for record in (own, ours):
            loops[record].append(tight(record, steps, counts[record]))
    middle = statistics.median  # and of loops the least disturbed
    return {
        "2 ms apart": (middle(apart[own]) / 1000, middle(apart[ours]) / 1000),
        "2 ms apart, process": (middle(spent[own]), middle(spent[ours])),
        "tight": (min(t for t, _ in loops[own]), min(t for t, _ in loops[ours])),
        "tight, process": (min(p for _, p in loops[own]), min(p for _, p in loops[ours])),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--quick", action="store_true", help="fewer batches and rounds")
    args = parser.parse_args()

    folder = tempfile.mkdtemp(prefix="sb-")
    os.environ["STATSBUS_ENGINES"] = f"ipc://{folder}/engines"
    context = multiprocessing.get_context("spawn")
    is_bound = context.Event()
    agent = context.Process(target=drain, args=(f"ipc://{folder}/engines", f"ipc://{folder}/replay", is_bound), daemon=True)
    agent.start()
    is_bound.wait(30)

    classes, own, config = real(args.model) if args.model else stand_ins()
    from statsbus.vllm.engine import Engine

    engine = Engine.of(config, [0])
    ours = as_vllm_calls(SimpleNamespace(**engine.calls()))
    print(f"{'batch':>6} {'stepping':22} {'vLLM us':>9} {'ours us':>9} {'ratio':>8} {'at least':>9}")
    is_over = False
    for batch in LIMITS if args.quick else SHOWN:
        steps = classes.steps(batch)
        gc.collect()
        gc.freeze()
        for way, (theirs, mine) in measure(own, ours, steps, args.quick).items():
            limits = dict(zip(("2 ms apart", "tight"), LIMITS.get(batch, ())))
            limit = limits.get(way)
            is_below = limit is not None and theirs / mine < limit
            is_over = is_over or is_below
            print(f"{batch:6} {way:22} {theirs:9.1f} {mine:9.2f} {theirs / mine:8.1f} {limit or '':>9}{'  BELOW' if is_below else ''}", flush=True)
    counts = engine.publisher.counts()
    if counts["faults"] or counts["salvaged"]:
        print(f"the publisher had faults: {counts}")
        is_over = True
    engine.publisher.close(ended=False, timeout_s=0.0)
    agent.kill()
    shutil.rmtree(folder, ignore_errors=True)
    return 1 if args.check and is_over else 0


if __name__ == "__main__":
    sys.exit(main())
