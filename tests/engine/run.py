"""
Checks the plugin on a real vLLM: what the hub shows is what the engine says of itself, series by series.

Run by scripts/test-engine. Each scenario is a function: a hub, an agent, an engine with the plugin, a load, a rest, a comparison.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent / "scripts")]

import golden  # noqa: E402
from daemons import OPENMETRICS, Cluster, DaemonError, Process, samples, wait_for  # noqa: E402
from engine import Engine, Lab, finish  # noqa: E402
from golden import differences, read_series  # noqa: E402
from reference import Series  # noqa: E402

EQUAL_S = 20.0  # for the hub to show what the engine printed when it came to rest
SOURCE_TIMEOUT_S = 4  # of the agents in these runs: a killed engine's gauges leave after it
ADAPTERS_S = 2.0  # the plugin repeats adapters that stay the same once a second
LEAVE_S = SOURCE_TIMEOUT_S + 12  # silence is judged at most ten seconds late
SMALL = ["--max-num-seqs", "16", "--num-gpu-blocks-override", "256"]
SPECULATION = '{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":4,"prompt_lookup_min":1}'


class Failed(Exception):
    pass


class World:
    """What a scenario runs in."""

    def __init__(self, lab: Lab, cluster: Cluster, scratch: Path) -> None:
        self.lab, self.cluster, self.scratch = lab, cluster, scratch
        self.node = cluster.plan_node("node-a", ["--source-timeout", f"{SOURCE_TIMEOUT_S}s"])
        self.engines: list[Engine] = []

    def start_agent(self) -> Process:
        return self.node.agent.start().wait_ready()

    def start(self, *flags: str, path: list[Path] | None = None, **environment: str) -> Engine:
        given = {"STATSBUS_ENGINES": self.node.engines, "STATSBUS_SERVICE": "chat", "STATSBUS_JOB_NAME": "engine-0", **environment}
        engine = Engine(self.lab, self.scratch, list(flags), given, path)
        self.engines.append(engine)
        return engine.wait_ready()

    def shown(self, view: str, accept: str = "text/plain") -> str:
        return self.cluster.hub.metrics(view, accept)

    def check_equal(self, series: Series, views: Iterable[str] = ("dp", "full")) -> None:
        """The hub shows these series in both views and both formats, and goes on to."""
        found: list[str] = []

        def is_equal() -> bool:
            found[:] = [line for view in views for accept in ("text/plain", OPENMETRICS)
                        for line in differences(series, self.shown(view, accept), view, accept == OPENMETRICS)]
            return not found

        try:
            wait_for(is_equal, "the hub shows the engine's numbers", EQUAL_S, 0.3)
        except DaemonError:
            raise Failed(f"{len(found)} differences:\n  " + "\n  ".join(found[:25])) from None
        wait_for(lambda: self.agent_says("missing_records") == 0, "the agent misses no record")
        print(f"    {len(series)} series are equal in {', '.join(views)}")

    def check_nothing_lost(self) -> None:
        for name in ("records_lost_total", "samples_refused_total", "refusals_total", "observations_unknown_total", "families_refused_total"):
            value = self.agent_says(name)
            if value:
                raise Failed(f"the agent says statsbus_agent_{name} {value:g}")

    def agent_says(self, name: str) -> float | None:
        return self.node.agent.sample(f"statsbus_agent_{name}")

    def close(self) -> None:
        for engine in self.engines:
            engine.stop()


SCENARIOS: dict[str, Callable[[World], None]] = {}


def scenario(function: Callable[[World], None]) -> Callable[[World], None]:
    SCENARIOS[function.__name__.replace("_", "-")] = function
    return function


def run_even(world: World, mix: str, *flags: str, models: tuple[str, ...] = (), **environment: str) -> Engine:
    """A load, a rest, a comparison with the engine's own /metrics, and an end in order."""
    world.start_agent()
    engine = world.start(*flags, **environment)
    print("    requests:", engine.load(mix, *models))
    world.check_equal(read_series(engine.wait_idle()))
    world.check_nothing_lost()
    return engine


def check_ends_in_order(world: World, engine: Engine) -> None:
    """An engine that is told to stop says so: its gauges leave before any timeout, its counters stay."""
    tokens = world.cluster.hub.sample("vllm:generation_tokens_total")
    engine.stop()
    wait_for(lambda: world.cluster.hub.sample("vllm:num_requests_running") is None, "gauges of an engine that ended left", 3.0)
    if world.cluster.hub.sample("vllm:generation_tokens_total") != tokens:
        raise Failed("counters of an engine that ended changed")


@scenario
def plain(world: World) -> None:
    """One API server: aborts, rejections, sleep, a reset of the prefix cache."""
    world.start_agent()
    engine = world.start("--max-num-seqs", "24", "--num-gpu-blocks-override", "256", "--max-num-queued-reqs", "20")
    print("    requests:", engine.load("plain"))
    engine.wait_idle()
    engine.post("/reset_prefix_cache")
    engine.post("/sleep?level=1")
    world.check_equal(read_series(engine.wait_idle()))
    engine.post("/wake_up")
    print("    requests:", engine.load("even"))
    world.check_equal(read_series(engine.wait_idle()))
    world.check_nothing_lost()
    check_ends_in_order(world, engine)


@scenario
def spec(world: World) -> None:
    """Speculative decoding."""
    run_even(world, "spec", *SMALL, "--speculative-config", SPECULATION)


@scenario
def smallkv(world: World) -> None:
    """A KV cache too small for the load: preemptions, queues, samples of evictions."""
    run_even(world, "smallkv", "--max-num-seqs", "16", "--num-gpu-blocks-override", "36", "--kv-cache-metrics",
             "--kv-cache-metrics-sample", "1.0", "--max-num-queued-reqs", "12")


@scenario
def lora(world: World) -> None:
    """Two adapters, one slot."""
    engine = run_even(world, "even", *SMALL, "--enable-lora", "--max-loras", "1", "--max-lora-rank", "8", "--lora-modules",
                      "one=MODELS/adapter1", "two=MODELS/adapter2", models=("tiny", "one", "two"))
    # The engine keeps every set of adapters that it ever had, with the time; we show the newest.
    shown = adapters(world.shown("full"))
    newest = adapters(engine.metrics())[-1:]
    if [labels for _, labels in shown] != [labels for _, labels in newest] or abs(shown[0][0] - newest[0][0]) > ADAPTERS_S:
        raise Failed(f"vllm:lora_requests_info is {shown}, the engine's newest is {newest}")


def adapters(text: str) -> list[tuple[float, dict[str, str]]]:
    """Values and labels of vllm:lora_requests_info, the newest last. The hub prints no label that is empty."""
    names = ("max_lora", "running_lora_adapters", "waiting_lora_adapters")
    return sorted(((value, {name: labels.get(name, "") for name in names}) for found, labels, value in samples(text)
                   if found == "vllm:lora_requests_info"), key=lambda sample: sample[0])


@scenario
def api2(world: World) -> None:
    """Two API server processes before one engine, which agree on its name without being told one."""
    engine = run_even(world, "even", *SMALL, "--api-server-count", "2", STATSBUS_JOB_NAME="")
    jobs = {labels["job_name"] for name, labels, _ in samples(world.shown("full")) if name == "statsbus_source_up"}
    if len(jobs) != 1 or not jobs.pop().endswith(f"-{engine.port}"):
        raise Failed(f"the engine's processes call it {jobs}")
    check_ends_in_order(world, engine)


@scenario
def dp2(world: World) -> None:
    """Two data parallel ranks, which have an API server each."""
    check_ends_in_order(world, run_even(world, "even", *SMALL, "--data-parallel-size", "2"))


@scenario
def sleepabort(world: World) -> None:
    """Put to sleep while requests run and wait: the engine aborts them itself."""
    world.start_agent()
    engine = world.start("--max-num-seqs", "4", "--num-gpu-blocks-override", "256")
    load = engine.start_load("long")
    wait_for(lambda: (world.cluster.hub.sample("vllm:num_requests_running") or 0) > 0, "requests run", 30)
    engine.post("/sleep?level=1")
    engine.post("/wake_up")
    print("    requests:", finish(load))
    world.check_equal(read_series(engine.wait_idle()))
    world.check_nothing_lost()


@scenario
def kill(world: World) -> None:
    """SIGKILL under load: gauges leave in time, totals stay, and those of the next life come on top of them."""
    world.start_agent()
    engine = world.start(*SMALL)
    print("    requests:", engine.load("even"))
    first = read_series(engine.wait_idle())
    world.check_equal(first)
    load = engine.start_load("long")
    wait_for(lambda: (world.cluster.hub.sample("vllm:num_requests_running") or 0) > 2, "requests run", 30)
    engine.kill()
    killed_at = time.monotonic()
    load.kill()
    load.wait()
    wait_for(lambda: world.cluster.hub.sample("vllm:num_requests_running") is None, "gauges of a killed engine left", LEAVE_S)
    print(f"    gauges left {time.monotonic() - killed_at:.1f} s after the kill (timeout {SOURCE_TIMEOUT_S} s)")
    before = totals(read_series(world.shown("full")))
    earlier = golden.expected(first, "full")
    lower = [row for row, value in before.items() if row in earlier and value < earlier[row]]
    if lower:
        raise Failed(f"totals fell when the engine was killed: {lower[:5]}")

    engine = world.start(*SMALL)
    print("    requests:", engine.load("even"))
    second = totals(golden.expected(read_series(engine.wait_idle()), "full"))
    found: list[str] = []

    def goes_on() -> bool:
        now = totals(read_series(world.shown("full")))
        found[:] = [f"{row[1]} {dict(row[2])} is {now.get(row)}, not {before.get(row, 0.0)} and {value} of the next life"
                    for row, value in second.items()
                    if not golden.is_same((row[0], f"{row[1]}_sum", row[2]), now.get(row, -1.0), before.get(row, 0.0) + value)]
        return not found

    try:
        wait_for(goes_on, "totals go on", EQUAL_S, 0.3)
    except DaemonError:
        raise Failed("\n  ".join(found[:20])) from None
    print(f"    {len(second)} totals went on")
    world.check_nothing_lost()


def totals(rows: Any) -> dict[golden.Row, float]:
    """Counters, and buckets, counts and sums of histograms, without the labels that say whose they are."""
    own = golden.SOURCE_LABELS | {"engine"}
    return {(family, name, frozenset((k, v) for k, v in labels if k not in own)): value for (family, name, labels), value in rows.items()
            if name.endswith(("_total", "_bucket", "_count", "_sum")) and not golden.is_derived(family)}


@scenario
def agent_away(world: World) -> None:
    """The agent comes after the engine, is stopped under load, is killed: what the ring held counts, once."""
    engine = world.start(*SMALL)  # no agent yet
    print("    requests:", engine.load("even"))
    engine.wait_idle()
    agent = world.start_agent()
    world.check_equal(read_series(engine.wait_idle()))
    load = engine.start_load("even")
    agent.send(signal.SIGSTOP)
    print("    requests, the agent stopped:", finish(load))
    agent.send(signal.SIGCONT)
    world.check_equal(read_series(engine.wait_idle()))
    load = engine.start_load("even")
    wait_for(lambda: (world.cluster.hub.sample("vllm:num_requests_running") or 0) > 0, "requests run", 30)
    agent.kill()
    print("    requests, the agent killed:", finish(load))
    world.start_agent()
    world.check_equal(read_series(engine.wait_idle()))
    world.check_nothing_lost()


@scenario
def replace_prometheus(world: World) -> None:
    """In the place of vLLM's Prometheus logger: equal to what a recording beside it says vLLM would have counted."""
    world.start_agent()
    captures = world.scratch / "captures"
    captures.mkdir()
    engine = world.start(*SMALL, "--max-num-queued-reqs", "30", path=[world.lab.add_capture(world.scratch)],
                         STATSBUS_REPLACE_PROMETHEUS="1", STATSBUS_TEST_CAPTURES=str(captures))
    print("    requests:", engine.load("plain"))
    wait_for(lambda: world.cluster.hub.sample("vllm:num_requests_running") == 0 and
             world.cluster.hub.sample("vllm:num_requests_waiting") == 0, "the engine is idle", 60)
    own = [name for _, name, _ in read_series(engine.metrics())]
    if own:
        raise Failed(f"the engine still counts {sorted(set(own))[:5]}")
    world.check_equal(golden.reference_after(sorted(captures.glob("stream-*.bin"))))
    world.check_nothing_lost()


@scenario
def off(world: World) -> None:
    """Installed, but STATSBUS_ENGINES is unset: the engine works as ever and nothing arrives."""
    world.start_agent()
    engine = world.start(*SMALL, STATSBUS_ENGINES="", STATSBUS_REPLACE_PROMETHEUS="1")
    print("    requests:", engine.load("even"))
    if not read_series(engine.wait_idle()):
        raise Failed("vLLM's own metrics are gone")
    if read_series(world.shown("full")):
        raise Failed("numbers arrived from an engine that was not told where to send them")


def run(name: str, lab: Lab, binaries: Path, keep: Path | None) -> bool:
    scratch = Path(tempfile.mkdtemp(prefix="sb-engine-"))
    start = time.monotonic()
    text = (SCENARIOS[name].__doc__ or "").strip()
    print(f"== {name}: {text}", flush=True)
    try:
        with Cluster(binaries) as cluster:
            world = World(lab, cluster, scratch)
            try:
                SCENARIOS[name](world)
            finally:
                world.close()
    except Exception as error:
        if not isinstance(error, (Failed, DaemonError)):
            traceback.print_exc()
        print(f"== {name}: FAILED after {time.monotonic() - start:.0f} s: {error}", flush=True)
        if keep:
            shutil.copytree(scratch, keep / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("source", "package"))
            print(f"   logs: {keep / name}")
        return False
    else:
        print(f"== {name}: ok, {time.monotonic() - start:.0f} s", flush=True)
        return True
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lab", type=Path, required=True)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--logs", type=Path, help="where logs of scenarios that fail are kept")
    parser.add_argument("scenario", nargs="*", choices=[*SCENARIOS, []])
    args = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="sb-lab-"))
    try:
        lab = Lab(args.lab.resolve(), scratch)
        results = {name: run(name, lab, args.bin.resolve(), args.logs) for name in args.scenario or SCENARIOS}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    failed = [name for name, is_good in results.items() if not is_good]
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed{': ' + ', '.join(failed) if failed else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
