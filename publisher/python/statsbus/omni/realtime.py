"""Realtime sessions whose voice detection is the server's."""

from __future__ import annotations

from typing import Optional

from ..locks import Lock
from .recorder import Recorder, Sites, at_least_zero, seconds, site


class Realtime(Sites):
    def __init__(self, recorder: Optional[Recorder]) -> None:
        super().__init__(recorder)
        self._active = 0
        self._counting = Lock()
        self.begin()

    @site
    def begin(self) -> None:
        self._to.observe(
            [
                ("realtime_vad_active_sessions", None, 0),
                ("realtime_vad_inference_latency_s", None, []),
                ("realtime_vad_endpoint_delay_s", None, []),
            ]
        )

    @site
    def session_started(self) -> None:
        self._change(1)

    @site
    def session_finished(self) -> None:
        self._change(-1)

    def _change(self, by: int) -> None:
        with self._counting:  # also around the record: the last one sent is the last one counted
            self._active = max(self._active + by, 0)
            self._to.observe([("realtime_vad_active_sessions", None, self._active)])

    @site
    def inferred(self, latency_ms: float) -> None:
        """Voice detection on one batch of audio."""
        self._to.observe([("realtime_vad_inference_latency_s", None, at_least_zero(seconds(latency_ms)))])

    @site
    def endpoint(self, delay_ms: float) -> None:
        """The silence after which an end of speech was found."""
        self._to.observe([("realtime_vad_endpoint_delay_s", None, at_least_zero(seconds(delay_ms)))])

    @site
    def error(self, reason: Optional[str]) -> None:
        self._to.observe([("realtime_vad_errors_total", {"reason": reason or "unknown"}, 1)])
