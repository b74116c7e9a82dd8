"""
A stat logger that writes what it is told to a file, in the form of the recordings in tests/data/captures, so that
tests/reference.py can say what vLLM would have counted. Only for runs in which vLLM's own counting is replaced.
"""

from __future__ import annotations

import enum
import os
import struct
import time
from typing import Any

import msgspec
import vllm
from statsbus.vllm.configuration import engine_info
from vllm.v1.metrics.loggers import AggregateStatLoggerBase

_encode = msgspec.msgpack.Encoder().encode


def plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value if isinstance(value, str) else str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return {key: plain(item) for key, item in vars(value).items()}


class CaptureLogger(AggregateStatLoggerBase):
    def __init__(self, vllm_config: Any, engine_indexes: list[int]) -> None:
        self._config, self._indexes = vllm_config, engine_indexes
        folder = os.environ["STATSBUS_TEST_CAPTURES"]
        self._file = os.open(f"{folder}/stream-{os.getpid()}.bin", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)

    def _write(self, kind: str, **content: Any) -> None:
        data = _encode({"kind": kind, "t": time.time(), "mono": time.monotonic(), "pid": os.getpid(), **content})
        os.write(self._file, struct.pack("<I", len(data)) + data)

    def log_engine_initialized(self) -> None:
        self._write("engine_info", info=engine_info(self._config, self._indexes, vllm.__version__))

    def record(self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0) -> None:
        stats = {"scheduler_stats": scheduler_stats, "iteration_stats": iteration_stats, "mm_cache_stats": mm_cache_stats}
        self._write("record", engine_idx=engine_idx, **{name: plain(part) for name, part in stats.items()})

    def record_sleep_state(self, sleep: int = 0, level: int = 0) -> None:
        self._write("sleep", sleep=sleep, level=level)

    def record_admission_rejection(self, reason: str) -> None:
        self._write("admission", reason=reason)
