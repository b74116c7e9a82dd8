"""Makes the corpus anew from the examples, the recordings, the catalog, the views and the computed metrics: small inputs from which fuzzing starts.

usage: make_corpus.py   (inputs that fuzzing found are kept beside, under other names)
"""

from __future__ import annotations

import json
import random
import struct
import sys
from pathlib import Path
from typing import Any

import msgspec

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "schemas"), str(REPOSITORY / "tests")]

from check import EXAMPLES, encode  # noqa: E402
from reference import entries  # noqa: E402

CORPUS = Path(__file__).resolve().parent / "corpus"
PUBLISHER = "5f2c0a9be47d41d08c6a3b1e7f905d12"
STATS, REPLAY = b"\x00", b"\x01"
pack = msgspec.msgpack.Encoder().encode


def piece(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def engine_message(kind: str, number: int, count: int, payload: bytes, socket: bytes = STATS) -> bytes:
    topic = f"statsbus1.{kind}.{PUBLISHER}".encode()
    return socket + piece(topic) + piece(struct.pack(">QI", number, count)) + piece(payload)


def example(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def engine_example(name: str, socket: bytes = STATS) -> bytes:
    message = example(EXAMPLES / "engine" / f"{name}.json")
    return engine_message(name, message["header"]["number"], message["header"]["count"], encode(message), socket)


def engine_inputs() -> dict[str, bytes]:
    hello, rec, beat = (engine_example(name) for name in ("hello", "rec", "beat"))
    end, mark = engine_example("end", REPLAY), engine_example("mark", REPLAY)
    out = {"hello": hello, "rec-alone": rec, "story": hello + rec + end + mark + beat + rec,
           "rec-cut": hello + rec[:-40], "rec-again": hello + rec + rec, "odd": hello + odd_records() + beat + odd_records(REPLAY)}
    out["totals"] = totals_input()
    for capture in ("plain", "spec", "lora", "smallkv"):
        out[f"capture-{capture}"] = capture_input(capture)
    return out


def odd_records(socket: bytes = STATS) -> bytes:
    """What engines should not send, and what an agent has to bear."""
    keys: dict[Any, Any] = {(1, (2, 3)): 1, None: [1], b"x": {}, 1.5: 1, True: 1}
    records = [["step", 0, 1e300, {"scheduler_stats": {"num_running_reqs": 1, **keys}, "iteration_stats": keys}],
               ["step", 0, 1.0, {"iteration_stats": {"num_generation_tokens": 1.7e308, "num_preempted_reqs": 2**64 - 1}}],
               ["lost", None, 0.0, None],
               ["obs", None, 2.0, [["vllm:num_requests_running", {"engine": "0"}, float("nan")], ["nobody", keys, 1], keys]],
               ["event", None, 3.0, {"sleep": keys, "admission": {"reason": (1, 2)}}]]
    return engine_message("rec", 1, len(records), pack(records), socket)


def totals_input() -> bytes:
    """After a lost state: totals of two sources, which rise, fall and come late."""
    hello = encode(example(EXAMPLES / "engine" / "hello.json"))
    payload = msgspec.msgpack.decode(hello)
    payload["sources"].append({**payload["sources"][0], "index": 1, "instance_id": "i-8", "counted_by": "engine 17"})

    def record(source: int, seconds: float, buckets: list[int]) -> list[Any]:
        return ["obs", source, 1.0, [["process_cpu_seconds_total", None, seconds], ["python_gc_collections_total", {"generation": "0"}, seconds],
                                     ["engine:pause_seconds", None, {"le": [0.1, 0.5], "buckets": buckets, "sum": seconds}]]]

    payload["latest"].append([40, *record(0, 10.0, [1, 1, 1])])
    records = [record(0, 12.0, [1, 2, 2]), record(1, 5.0, [0, 0, 3]), record(0, 1.5, [1, 1, 1]), record(1, 4.0, [1, 0, 9])]
    late = [engine_message("rec", 41 + i, 1, pack([records[i]])) for i in (2, 0, 3, 1)]
    return engine_message("hello", 45, 0, pack(payload)) + b"".join(late)


def capture_input(capture: str, steps: int = 12) -> bytes:
    """A hello with the engine's own buckets, and some of its steps."""
    calls = list(entries(REPOSITORY / "tests" / "data" / "captures" / capture / "stream.bin.gz"))
    info = next(call["info"] for call in calls if call["kind"] == "engine_info")
    busy = [call for call in calls if call["kind"] == "record" and call["iteration_stats"]]
    payload = {"publisher": PUBLISHER, "pid": 1, "host": "boot", "time": 1.0, "engine": {"name": "vllm", "version": info["vllm_version"]},
               "mark": None, "config": {key: info[key] for key in ("speculative", "lora", "observability", "kv_transfer_role")},
               "buckets": info["bucket_families"], "sources": [{"index": 0, "service_name": "s", "model_name": "m", "dp_rank": "0"}],
               "families": [], "info": [[None, "cache_config_info", info["cache_config_info"]]], "latest": []}
    records = [["step", 0, call["mono"], {key: call[key] for key in ("scheduler_stats", "iteration_stats", "mm_cache_stats")}]
               for call in busy[len(busy) // 2:len(busy) // 2 + steps]]
    return engine_message("hello", 1, 0, pack(payload)) + engine_message("rec", 1, len(records), pack(records))


def hub_inputs() -> dict[str, bytes]:
    messages = {path.stem: piece(encode(example(path))) for path in sorted((EXAMPLES / "hub").glob("*.json"))}
    begin = messages["HELLO"] + messages["DEFINE"]
    story = begin + messages["FRAME"] + messages["FRAME-alone"] + messages["END"] + messages["FORGET"]
    return {"story": story, "frame-undefined": messages["HELLO"] + messages["FRAME"], "no-hello": messages["FRAME"],
            "define-twice": begin + messages["DEFINE"], "frame-twice": begin + messages["FRAME"] * 2, "cut": story[:-20],
            **{name.lower(): data for name, data in messages.items()}}


def broken(name: str, text: str, draw: random.Random) -> dict[str, bytes]:
    """The text as it is, and with one line of it spoiled."""
    out = {name: text.encode()}
    lines = text.splitlines(keepends=True)
    for number in range(8):
        line = draw.randrange(len(lines))
        spoiled = draw.choice([lines[line][:len(lines[line]) // 2] + "\n", "", "  x: [1, {\n", lines[line].replace(":", "", 1)])
        out[f"{name}-broken-{number}"] = "".join([*lines[:line], spoiled, *lines[line + 1:]]).encode()
    return out


def catalog_inputs() -> dict[str, bytes]:
    out = {}
    draw = random.Random(1)
    for path in sorted((REPOSITORY / "schemas" / "catalog").glob("*.yaml")):
        out.update(broken(path.stem, path.read_text(), draw))
    return out


# Every key that a view may have.
KEYS = """version: 1
views:
  dp: {by: [dp_rank, zone], rename: {engine: dp_rank, exported_role: zone}, buckets: false, derived: false}
  zone:
    by: [zone, role]
    where: {role: [decode, both], node: [n]}
    allow: ["fuzz:h", "fuzz:h_p50", "vllm:prompt_tokens"]
    deny: ["fuzz:h_mean"]
    keep: true
    role_scope: true
    own: true
  full: {by: []}
"""


def computed_inputs() -> dict[str, bytes]:
    draw = random.Random(4)
    schemas = REPOSITORY / "schemas"
    return {**broken("built-in", (schemas / "computed.yaml").read_text(), draw), **broken("capacity", (schemas / "capacity.yaml").read_text(), draw)}


def views_inputs() -> dict[str, bytes]:
    draw = random.Random(1)
    return {**broken("built-in", (REPOSITORY / "schemas" / "views.yaml").read_text(), draw), **broken("keys", KEYS, draw)}


def main() -> None:
    for folder, inputs in (("engine", engine_inputs()), ("hub", hub_inputs()), ("catalog", catalog_inputs()),
                           ("views", views_inputs()), ("computed", computed_inputs())):
        (CORPUS / folder).mkdir(parents=True, exist_ok=True)
        for name, data in inputs.items():
            (CORPUS / folder / name).write_bytes(data)
        print(f"{folder}: {len(inputs)} inputs, {sum(map(len, inputs.values()))} bytes")


if __name__ == "__main__":
    main()
