"""Holds the protocols' documents and their examples together.

usage: check.py [--write]
Every example's JSON must encode to the bytes beside it (--write makes them), and every message kind that a document's
table names must have an example.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from pathlib import Path
from typing import Any

import msgspec

SCHEMAS = Path(__file__).resolve().parent
EXAMPLES = SCHEMAS / "examples"
# Documents, the heading under which a table names the kinds, and the folder of their examples.
TABLES = [
    ("engine-wire.md", "## Publisher to agent", "engine"),
    ("engine-wire.md", "## Agent to publisher", "engine"),
    ("hub-wire.md", "# Agent to hub", "hub"),
]
FILE_OF_KIND = {
    ("## Agent to publisher", "hello"): "hello-request",
    ("# Agent to hub", "FRAME alone"): "FRAME-alone",
}


def plain(value: Any) -> Any:
    """An example's JSON as the value to encode."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        if set(value) == {"bin"}:
            return bytes.fromhex(value["bin"])
        if set(value) == {"uint32"}:
            return struct.pack(f"<{len(value['uint32'])}I", *value["uint32"])
        if set(value) == {"float64"}:
            return struct.pack(f"<{len(value['float64'])}d", *value["float64"])
        return {key: plain(item) for key, item in value.items()}
    return value


def encode(example: dict[str, Any]) -> bytes:
    return msgspec.msgpack.encode(plain(example["message"] if "message" in example else example["payload"]))


def check_example(path: Path, is_writing: bool) -> list[str]:
    example = json.loads(path.read_text())
    allowed = {"about", "message"}, {"about", "topic", "header", "payload"}
    if set(example) not in allowed:
        return [f"{path.name}: keys are {sorted(example)}"]
    bytes_path = path.with_suffix(".msgpack")
    encoded = encode(example)
    if is_writing:
        bytes_path.write_bytes(encoded)
    if not bytes_path.exists():
        return [f"{bytes_path.name} is not there: check.py --write makes it"]
    if bytes_path.read_bytes() != encoded:
        return [f"{bytes_path.name} is not what {path.name} says"]
    return []


def kinds(document: str, heading: str) -> list[str]:
    """First cells of the first table after a heading: what is in backquotes, with the words after it."""
    text = (SCHEMAS / document).read_text().split("\n" + heading if not heading.startswith("# ") else heading, 1)[1]
    rows: list[str] = []
    for line in text.splitlines():
        if line.startswith("|"):
            rows.append(line.split("|")[1].strip())
        elif rows:
            break
    named = []
    for cell in rows[2:]:
        if match := re.fullmatch(r'`(?:\["(\w+)".*\]|(\w+))`(.*)', cell):
            named.append((match[1] or match[2]) + match[3])
    return named


def main() -> int:
    is_writing = sys.argv[1:] == ["--write"]
    faults = []
    paths = sorted(EXAMPLES.glob("*/*.json"))
    for path in paths:
        faults += check_example(path, is_writing)
    count = 0
    for document, heading, folder in TABLES:
        found = kinds(document, heading)
        if not found:
            faults.append(f"{document}: no table of kinds under '{heading}'")
        for kind in found:
            count += 1
            name = FILE_OF_KIND.get((heading, kind), kind)
            if not (EXAMPLES / folder / f"{name}.json").exists():
                faults.append(f"{document}: {kind} has no example ({folder}/{name}.json)")
    for fault in faults:
        print(fault)
    print(f"{len(paths)} examples of {count} kinds: {'all as documented' if not faults else f'{len(faults)} faults'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
