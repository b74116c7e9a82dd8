"""What goes over the wire, byte by byte: schemas/engine-wire.md is the contract, this file its sender's half."""

from __future__ import annotations

import os
import struct
from typing import Any, Dict, List, Mapping, Optional, Tuple

import msgspec

MESSAGE_BYTES = 1 << 20  # payload of a message; an agent refuses more
MESSAGE_RECORDS = 8192  # records in one `rec` message
ARRAY_HEADER_BYTES = 5  # the longest msgpack array header
RECORD_BYTES = MESSAGE_BYTES - ARRAY_HEADER_BYTES  # a record over this cannot travel at all
PIECE_BYTES = 256 << 10  # what we pack into one message: 64 of them queued are 16 MiB, not 64
QUEUE_MESSAGES = 64  # high-water mark of both sockets
SOURCES = 1024
FAMILIES = 1024
RANGES = 1024  # ranges of a mark
INTEGERS = range(-(1 << 63), 1 << 64)  # what msgpack has room for
COUNTED_BY_BYTES = 256
CONFIG_DEPTH = 12  # maps inside the configuration; the hello around it takes two of the 16 levels

_HEADER = struct.Struct(">QI")
_encode = msgspec.msgpack.Encoder().encode

Mark = Tuple[bytes, List[int]]
"""The agent's lineage, and what it has committed: [from, to, from, to, ...], inclusive, rising, not touching."""


class Source(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One scheduler that a publisher speaks for. Its index is its place in the list and never changes meaning."""

    service_name: Optional[str] = None
    model_name: Optional[str] = None
    job_name: Optional[str] = None
    instance_id: Optional[str] = None
    role: Optional[str] = None
    dp_rank: Optional[str] = "0"
    stage: Optional[str] = None
    replica: Optional[str] = None
    node: Optional[str] = None
    pod_ip: Optional[str] = None
    labels: Dict[str, str] = {}
    observed: bool = False
    """It has observations and perhaps never a step: what steps feed starts at zero with its first one."""
    counted_by: Optional[str] = None
    """What counts the totals of its cumulative families, if not this process: one life of an exporter or engine, by a name."""

    def __post_init__(self) -> None:
        for name in ("le", "quantile"):
            if name in self.labels:
                raise ValueError(f"labels has {name!r}, which belongs to histograms")
        if len((self.counted_by or "").encode()) > COUNTED_BY_BYTES:
            raise ValueError(f"counted_by takes more than {COUNTED_BY_BYTES} bytes")


class Family(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A metric family that the catalog doesn't have, described by the publisher itself."""

    name: str
    type: str
    help: str = ""
    unit: Optional[str] = None
    labels: List[str] = []
    semantic: Optional[str] = None
    buckets: Optional[List[float]] = None
    scope: Optional[str] = None
    cumulative: bool = False
    """What is observed of it is what was counted so far, not an increment."""

    def __post_init__(self) -> None:
        if self.type not in ("counter", "gauge", "histogram"):
            raise ValueError(f"family {self.name}: type {self.type!r} is neither counter, gauge nor histogram")
        if self.cumulative and self.type == "gauge":
            raise ValueError(f"family {self.name}: a gauge cannot be cumulative")


def topic(kind: str, publisher: str) -> bytes:
    return f"statsbus1.{kind}.{publisher}".encode()


def header(number: int, count: int) -> bytes:
    return _HEADER.pack(number, count)


def array_header(n: int) -> bytes:
    if n < 16:
        return bytes((0x90 | n,))
    if n < 1 << 16:
        return b"\xdc" + n.to_bytes(2, "big")
    return b"\xdd" + n.to_bytes(4, "big")


def latest_of(number: int, record: bytes) -> bytes:
    """[number, type, source, time, content] out of an encoded [type, source, time, content]."""
    return b"\x95" + _encode(number) + record[1:]


def read_mark(lineage: Any, ranges: Any, highest: int) -> Optional[Mark]:
    """The mark that an `applied` message states; None if it is not one, or speaks of numbers never given."""
    if not isinstance(lineage, bytes) or len(lineage) != 16 or not isinstance(ranges, list):
        return None
    if len(ranges) % 2 or len(ranges) > 2 * RANGES or not all(type(n) is int for n in ranges):
        return None
    last = -1
    for low, high in zip(ranges[::2], ranges[1::2]):
        if low < 1 or low <= last + 1 or high < low:
            return None
        last = high
    return (lineage, ranges) if last <= highest else None


def scalars(value: Mapping[Any, Any], depth: int = CONFIG_DEPTH) -> Dict[str, Any]:
    """Configuration as the hello has it: nested maps of scalars. Anything else in it is left out."""
    out: Dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            if depth > 1:
                out[str(key)] = scalars(item, depth - 1)
        elif item is None or type(item) in (bool, float, str) or (type(item) is int and item in INTEGERS):
            out[str(key)] = item
    return out


def boot_id() -> str:
    """Names the kernel whose monotonic clock we read, so that publishers of one host compare as they are."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return os.uname().nodename


def endpoints(engines: Optional[str], replay: Optional[str]) -> Tuple[str, str]:
    """Both endpoints, from arguments, environment, and the rule that replay is the neighbour of engines."""
    engines = engines or os.environ.get("STATSBUS_ENGINES")
    if not engines:
        raise ValueError("no endpoint to publish to: give engines= (the flag --engines), or set STATSBUS_ENGINES")
    _check_endpoint(engines)
    replay = replay or os.environ.get("STATSBUS_REPLAY")
    if replay:
        _check_endpoint(replay)
    return engines, replay or _neighbour(engines)


def _check_endpoint(endpoint: str) -> None:
    if not endpoint.startswith(("ipc://", "tcp://")):
        raise ValueError(f"{endpoint!r} is no endpoint: it starts with neither ipc:// nor tcp://")


def _neighbour(engines: str) -> str:
    scheme, _, address = engines.partition("://")
    if scheme == "ipc":
        before, found, after = address.rpartition("engines")
        if found:
            return f"ipc://{before}replay{after}"
    if scheme == "tcp":
        host, _, port = address.rpartition(":")
        if host and port.isdigit() and int(port) < 65535:
            return f"tcp://{host}:{int(port) + 1}"
    raise ValueError(f"no replay endpoint follows from {engines!r}: give replay= (--replay), or set STATSBUS_REPLAY")
