"""Recorded streams: repeated <u32 little-endian length><msgpack map>, plain or gzip."""

from __future__ import annotations

import logging
import struct
import zlib
from typing import Any, Dict, Iterator, Optional

import msgspec

ENTRY_BYTES = 64 << 20  # a length over this is not one

log = logging.getLogger("statsbus")
_LENGTH = struct.Struct("<I")
_GZIP = b"\x1f\x8b"


class StreamError(Exception):
    """The file is not a stream; the message says which file, and why."""


def entries(path: str, limit: Optional[int] = None) -> Iterator[Dict[str, Any]]:
    """The stream's entries, at most `limit`. A last one that is cut off is left out, with a warning."""
    data = _content(path)
    decode = msgspec.msgpack.Decoder(Dict[str, Any]).decode
    at = count = 0
    while at < len(data) and (limit is None or count < limit):
        start = at + _LENGTH.size
        length = _LENGTH.unpack_from(data, at)[0] if start <= len(data) else 0
        if length > ENTRY_BYTES or (count == 0 and start + length > len(data)):
            raise StreamError(f"{path} is not a statistics stream: no entry at byte {at}")
        if start > len(data) or start + length > len(data):
            log.warning("statsbus: %s: entry %d, the last one, is cut off and left out", path, count + 1)
            return
        try:
            entry = decode(memoryview(data)[start : start + length])
        except msgspec.DecodeError as error:
            raise StreamError(f"{path} is not a statistics stream: entry {count + 1} at byte {at}: {error}") from error
        if not isinstance(entry.get("kind"), str):
            raise StreamError(f"{path} is not a statistics stream: entry {count + 1} at byte {at} has no kind")
        yield entry
        at = start + length
        count += 1


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise StreamError(f"{path} cannot be read: {error.strerror}") from error
    if data[: len(_GZIP)] == _GZIP:
        data = _gunzip(path, data)
    if not data:
        raise StreamError(f"{path} is empty")
    return data


def _gunzip(path: str, data: bytes) -> bytes:
    """All that is there of a gzip file, also when its end is missing (gzip's own reader gives nothing then)."""
    parts = []
    try:
        while data[: len(_GZIP)] == _GZIP:
            member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
            parts.append(member.decompress(data))
            data = member.unused_data
    except zlib.error as error:
        raise StreamError(f"{path} is damaged: {error}") from error
    return b"".join(parts)
