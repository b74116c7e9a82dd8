"""python -m statsbus replay: what the recorded engine said, with its clocks; and only then an exit with 0."""

from __future__ import annotations

import collections
import gzip
import pathlib
import signal
import struct
import subprocess
import sys
import time

import msgspec
import pytest
from statsbus.stream import StreamError, entries

ROOT = pathlib.Path(__file__).parents[1]
CAPTURES = ROOT.parents[1] / "tests" / "data" / "captures"
STREAMS = sorted(CAPTURES.glob("*/stream*.bin.gz"))
PLAIN = CAPTURES / "plain" / "stream.bin.gz"
NAME = {STREAM: f"{STREAM.parent.name}-{STREAM.name.split('.')[0]}" for STREAM in STREAMS}


def start(folder, stream, *options):
    command = [sys.executable, "-m", "statsbus", "replay", str(stream), "--engines", f"ipc://{folder}/engines",
               "--replay", f"ipc://{folder}/replay", "--service", "golden", "--job-name", "engine-0",
               "--instance-id", "i-1", "--role", "both", *options]  # fmt: skip
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def play(agent, folder, stream, *options):
    """Plays to the end; (exit code, stderr, the publisher's records in order)."""
    process = start(folder, stream, *options)
    agent.until(lambda: process.poll() is not None, 30)
    agent.settle(0.05)
    _, err = process.communicate()
    (publisher,) = agent.records or [None]
    return process.returncode, err, [r for _, r in sorted(agent.records.get(publisher, {}).items())]


def expected(stream, limit=None):
    """The records that an engine with this life publishes, put together independently of the package."""
    out, info, source_of, adapters = [], None, {}, {}
    for n, entry in enumerate(entries(str(stream))):
        if n == limit:
            break
        mono, kind = entry["mono"], entry["kind"]
        if kind == "engine_info":
            info = entry["info"]
            source_of = {index: n for n, index in enumerate(info["engine_indexes"])}
            out.append(["event", None, mono, {"sleep": {"sleep": 0, "level": 0}}])
        elif kind == "record":
            source, names = source_of[entry["engine_idx"]], ("scheduler_stats", "iteration_stats", "mm_cache_stats")
            out.append(["step", source, mono, {name: entry[name] for name in names}])
            if info["lora"] and entry["scheduler_stats"]:
                stats = entry["scheduler_stats"]
                labels = {
                    "max_lora": "1",
                    "running_lora_adapters": ",".join(stats["running_lora_adapters"]),
                    "waiting_lora_adapters": ",".join(stats["waiting_lora_adapters"]),
                }
                known, at = adapters.get(source, (None, 0.0))
                if labels != known or entry["t"] - at >= 1.0:
                    adapters[source] = (labels, entry["t"])
                    out.append(["obs", source, mono, [["vllm:lora_requests_info", labels, entry["t"]]]])
        elif kind == "sleep":
            out.append(["event", None, mono, {"sleep": {"sleep": entry["sleep"], "level": entry["level"]}}])
        elif kind == "admission":
            out.append(["event", None, mono, {"admission": {"reason": entry["reason"]}}])
    return out


@pytest.mark.parametrize("stream", STREAMS, ids=NAME.get)
def test_a_capture_is_published_as_the_engine_recorded_it(healing_agent, folder, stream):
    code, err, records = play(healing_agent, folder, stream, "--speed", "max")
    assert (code, err) == (0, "")
    assert records == expected(stream)
    assert not any(m.payload.get("ended") for m in healing_agent.of("beat"))


def test_all_kinds_of_entries_were_among_the_captures():
    kinds = collections.Counter(record[0] for stream in STREAMS for record in expected(stream))
    assert set(kinds) == {"step", "event", "obs"} and kinds["step"] > 5000


def test_the_hello_describes_the_recorded_engine(healing_agent, folder):
    stream = CAPTURES / "dp2" / "stream-5101.bin.gz"
    assert (
        play(healing_agent, folder, stream, "--speed", "max", "--node", "n1", "--stage", "0", "--replica", "2")[0] == 0
    )
    info = next(entries(str(stream)))["info"]
    hello = healing_agent.of("hello")[-1].payload
    assert hello["host"] == "replay" and hello["engine"] == {"name": "vllm", "version": "0.32.0"}
    assert [source["dp_rank"] for source in hello["sources"]] == ["0", "1"]
    for source in hello["sources"]:
        assert (
            source["service_name"] == "golden" and source["job_name"] == "engine-0" and source["model_name"] == "tiny"
        )
        assert source["instance_id"] == "i-1" and source["role"] == "both" and source["labels"] == {}
        assert (source["node"], source["stage"], source["replica"], source["pod_ip"]) == ("n1", "0", "2", None)
    assert hello["buckets"] == info["bucket_families"]
    assert hello["info"] == [[None, "cache_config_info", info["cache_config_info"]]]
    config = hello["config"]
    assert not {"prom_catalog", "cache_config_info", "bucket_families", "argv"} & set(config)
    assert config["parallel_config"]["data_parallel_size"] == 2 and config["env"]["VLLM_LOG_STATS_INTERVAL"] == "5"
    assert config["observability"]["kv_cache_metrics"] is False and config["kv_transfer_role"] is None


def test_the_model_can_be_named(healing_agent, folder):
    assert play(healing_agent, folder, PLAIN, "--speed", "max", "--limit", "2", "--model", "other")[0] == 0
    assert healing_agent.of("hello")[-1].payload["sources"][0]["model_name"] == "other"


@pytest.mark.parametrize("limit", [1, 2, 3, 206, 700, 100_000])
def test_the_limit_counts_entries_of_any_kind(healing_agent, folder, limit):
    code, _, records = play(healing_agent, folder, PLAIN, "--speed", "max", "--limit", str(limit))
    assert code == 0 and records == expected(PLAIN, limit)


def test_a_limit_of_nothing_plays_nothing(folder):
    process = start(folder, PLAIN, "--limit", "0")
    assert process.communicate(timeout=20)[1] == "" and process.returncode == 0


def test_bye_ends_all_sources_in_order(healing_agent, folder):
    assert play(healing_agent, folder, CAPTURES / "dp2" / "stream-5101.bin.gz", "--speed", "max", "--bye")[0] == 0
    final = healing_agent.of("beat")[-1].payload
    assert final["live"] == [] and final["ended"] == [0, 1]


def test_hello_and_beats_have_the_recorded_clock(healing_agent, folder):
    assert play(healing_agent, folder, PLAIN, "--speed", "max", "--bye")[0] == 0
    monos = [entry["mono"] for entry in entries(str(PLAIN))]
    times = [m.payload["time"] for m in healing_agent.messages if m.kind in ("hello", "beat")]
    assert all(monos[0] <= t <= monos[-1] + 60 for t in times) and times == sorted(times)
    assert times[-1] >= monos[-1]


def test_a_loop_runs_on_with_rising_clocks_until_it_is_stopped(healing_agent, folder):
    process = start(folder, PLAIN, "--speed", "max", "--loop", "--limit", "100")
    healing_agent.until(lambda: max(map(len, healing_agent.records.values()), default=0) > 1000, 30)
    process.send_signal(signal.SIGTERM)
    healing_agent.until(lambda: process.poll() is not None, 30)
    assert process.communicate()[1] == "" and process.returncode == 0
    healing_agent.settle(0.05)
    ((publisher, records),) = healing_agent.records.items()
    assert healing_agent.ranges(publisher) == [1, len(records)] and not any(healing_agent.lost.values())
    first = expected(PLAIN, 100)
    played = list(entries(str(PLAIN), 100))
    shift = played[-1]["mono"] - played[0]["mono"]
    second = [records[n] for n in range(len(first) + 1, 2 * len(first) + 1)]
    for before, after in zip(first, second):
        assert after[:2] == before[:2] and after[3] == before[3]
        assert after[2] == pytest.approx(before[2] + shift, abs=0.01)
    times = [records[n][2] for n in sorted(records)]
    assert times == sorted(times) and second[0][2] > first[-1][2]


def test_ctrl_c_ends_a_loop_at_the_recorded_pace_at_once_with_0(healing_agent, folder):
    process = start(folder, PLAIN, "--speed", "1", "--loop")
    healing_agent.until(lambda: healing_agent.records, 20)
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    healing_agent.until(lambda: process.poll() is not None, 20)
    process.communicate()
    assert process.returncode == 0 and time.monotonic() - begin < 5


def test_a_replay_that_is_stopped_before_its_end_says_so(healing_agent, folder):
    process = start(folder, PLAIN, "--speed", "1")
    healing_agent.until(lambda: healing_agent.records, 20)
    process.send_signal(signal.SIGTERM)
    healing_agent.until(lambda: process.poll() is not None, 20)
    assert "SIGTERM" in process.communicate()[1] and process.returncode == 128 + signal.SIGTERM


def test_the_recorded_pace_is_kept(healing_agent, folder):
    some = list(entries(str(PLAIN), 60))
    begin = time.monotonic()
    assert play(healing_agent, folder, PLAIN, "--speed", "4", "--limit", "60")[0] == 0
    assert time.monotonic() - begin >= (some[-1]["mono"] - some[0]["mono"]) / 4


def test_without_an_agent_it_gives_up_with_a_reason(folder):
    process = start(folder, PLAIN, "--speed", "max", "--timeout", "0.5")
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "no agent listens" in err and f"ipc://{folder}/engines" in err and "0 of " in err and "Traceback" not in err


def test_with_an_agent_that_never_applies_it_does_not_end_with_0(agent, folder):
    process = start(folder, PLAIN, "--speed", "max", "--timeout", "0.5")
    agent.until(lambda: process.poll() is not None, 20)
    assert "an agent listens" in process.communicate()[1] and process.returncode == 1


def test_at_full_speed_it_does_not_outrun_its_ring(healing_agent, folder, monkeypatch, tmp_path):
    """In a process of its own, so that ring and agent can be as small as the test wants."""
    program = f"""
import functools, sys
import statsbus.replay as replay, statsbus.__main__ as main
replay.Publisher = functools.partial(replay.Publisher, ring_records=100)
sys.exit(main.main(["replay", {str(PLAIN)!r}, "--engines", "ipc://{folder}/engines", "--speed", "max"]))
"""
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    healing_agent.until(lambda: process.poll() is not None, 30)
    assert process.communicate()[1] == "" and process.returncode == 0
    ((_, records),) = healing_agent.records.items()
    assert len(records) == len(expected(PLAIN)) and not any(healing_agent.lost.values())


# ---- streams


def packed(*items):
    bodies = [msgspec.msgpack.encode(item) for item in items]
    return b"".join(struct.pack("<I", len(body)) + body for body in bodies)


TWO = packed({"kind": "log", "t": 1.0, "mono": 1.0}, {"kind": "log", "t": 2.0, "mono": 2.0})


@pytest.mark.parametrize(
    "compress", [bytes, gzip.compress, lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])]
)
def test_streams_may_be_plain_or_gzip(tmp_path, compress):
    path = tmp_path / "stream"
    path.write_bytes(compress(TWO))
    assert [entry["mono"] for entry in entries(str(path))] == [1.0, 2.0]


@pytest.mark.parametrize("cut", range(1, len(TWO) // 2))
def test_a_cut_last_entry_is_left_out_with_a_warning(tmp_path, caplog, cut):
    path = tmp_path / "stream"
    path.write_bytes(TWO[:-cut])
    assert [entry["mono"] for entry in entries(str(path))] == [1.0]
    assert "entry 2" in caplog.text


def test_of_a_cut_gzip_file_everything_that_is_there_is_played(tmp_path):
    path = tmp_path / "stream.gz"
    whole = len(list(entries(str(PLAIN))))
    path.write_bytes(PLAIN.read_bytes()[:-2000])
    assert whole * 0.8 < len(list(entries(str(path)))) < whole


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"", "is empty"),
        (b"# HELP vllm:num_requests_running Number of requests\n", "not a statistics stream"),
        (b"\x00\x00", "not a statistics stream"),
        (TWO[:-1][:20], "not a statistics stream"),
        (packed([1, 2]), "not a statistics stream"),
        (packed({"no": "kind"}), "has no kind"),
        (TWO + b"\x04\x00\x00\x00\xc1\xc1\xc1\xc1", "entry 3"),
        (b"\x1f\x8bnonsense", "damaged"),
    ],
)
def test_a_file_that_is_no_stream_is_refused_with_the_reason(folder, tmp_path, content, reason):
    path = tmp_path / "stream"
    path.write_bytes(content)
    with pytest.raises(StreamError, match=reason):
        list(entries(str(path)))
    process = start(folder, path, "--speed", "max")
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1 and reason in err and "Traceback" not in err


@pytest.mark.parametrize(
    "items",
    [
        [{"kind": "record", "t": 1.0, "mono": 1.0, "engine_idx": 0}],
        [{"kind": "engine_info", "info": {}}],
        [{"kind": "engine_info", "t": 1.0, "mono": 1.0}],
        [{"kind": "engine_info", "t": 1.0, "mono": 1.0, "info": {}}, {"kind": "sleep", "t": 1.0, "mono": 1.0}],
    ],
)
def test_entries_that_no_engine_records_are_refused_by_number(folder, tmp_path, items):
    path = tmp_path / "stream"
    path.write_bytes(packed(*items))
    process = start(folder, path, "--speed", "max")
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1 and str(path) in err and "Traceback" not in err


def test_a_missing_file_is_named(folder):
    process = start(folder, "/nowhere/stream.bin")
    assert "/nowhere/stream.bin cannot be read" in process.communicate(timeout=20)[1] and process.returncode == 1


def test_inspect_counts_the_entries():
    command = [sys.executable, "-m", "statsbus", "inspect", str(PLAIN)]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [line.split()[:2] for line in out.splitlines()][:2] == [["1324", "record"], ["16", "admission"]]


def run_main(*arguments):
    command = [sys.executable, "-m", "statsbus", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def test_inspect_lists_the_fields_with_examples():
    done = run_main("inspect", "--fields", PLAIN)
    assert (done.returncode, done.stderr) == (0, "")
    found = dict(line.split(None, 1) for line in done.stdout.splitlines())
    assert int(found["step.scheduler_stats.prefix_cache_stats.queries"]) > 0
    assert float(found["step.iteration_stats.inter_token_latencies_iter[]"]) > 0
    assert float(found["step.iteration_stats.finished_requests[].e2e_latency"]) > 0
    assert found["step.scheduler_stats.perf_stats"] == "None"
    assert {"event.sleep.sleep", "event.admission.reason"} < set(found)
    assert "step.scheduler_stats" not in found and "step.iteration_stats.finished_requests" not in found


def test_inspect_names_what_it_cannot_read():
    for flags in [], ["--fields"]:
        done = run_main("inspect", *flags, "/nowhere/stream.bin")
        assert done.returncode == 1 and "/nowhere/stream.bin cannot be read" in done.stderr


def test_the_version_is_told():
    assert run_main("--version").stdout == "statsbus 0.1.0\n"


def test_a_replay_that_was_not_told_where_to_publish_names_flag_and_variable():
    done = run_main("replay", PLAIN)
    assert done.returncode == 1 and "--engines" in done.stderr and "STATSBUS_ENGINES" in done.stderr
