"""Requests of the pipeline as a whole."""

from __future__ import annotations

import enum
from typing import Any, List, Mapping, Optional

from ..encoding import Observation
from .recorder import Recorder, Sites, at_least_zero, seconds, site

FAILURES = frozenset({"client_abort", "client_disconnect", "stage_error", "unknown"})
AT_ZERO: List[Observation] = [  # what vLLM-Omni prints before the first request
    ("num_requests_running", None, 0),
    ("num_requests_waiting", None, 0),
    ("prompt_tokens_total", None, 0),
    ("generation_tokens_total", None, 0),
    ("image_count_total", None, 0),
    ("e2e_request_latency_s", None, []),
    ("request_queue_wait_s", None, []),
    ("num_inference_steps", None, []),
    ("image_pixels", None, []),
]


class RequestCounter:
    """How many requests run. Written by the orchestrator's thread, read by others; it is advisory, so without a lock."""

    def __init__(self) -> None:
        self.value = 0

    def increment(self) -> None:
        self.value += 1

    def decrement(self) -> None:
        self.value = max(0, self.value - 1)


class Requests(Sites):
    def __init__(self, recorder: Optional[Recorder]) -> None:
        super().__init__(recorder)
        self.counter = RequestCounter()
        self.begin()

    @site
    def begin(self) -> None:
        self._to.observe(AT_ZERO)

    @site
    def in_flight(self, total: int) -> None:
        """So many requests are in the pipeline: those that don't run (by `counter`) wait."""
        running = self.counter.value
        self._to.observe(
            [("num_requests_running", None, running), ("num_requests_waiting", None, max(total - running, 0))]
        )

    @site
    def succeeded(
        self,
        request_id: str,
        e2e_s: float,
        finished_reason: Any = "stop",
        *,
        prompt_tokens: Optional[int] = 0,
        generation_tokens: Optional[int] = 0,
        pipeline_timings: Optional[Mapping[str, Any]] = None,
    ) -> None:
        """
        A request has ended at its last stage; said again, it counts once. Its wait in the orchestrator's queue is
        `queue_wait_ms` of the timings: 0 is a wait of 0, and where it is missing nothing was measured.
        """
        observations: List[Observation] = [
            ("requests_success_total", {"finished_reason": reason_text(finished_reason) or "stop"}, 1),
            ("e2e_request_latency_s", None, at_least_zero(e2e_s)),
        ]
        for family, tokens in (("prompt_tokens_total", prompt_tokens), ("generation_tokens_total", generation_tokens)):
            if tokens is not None:
                observations.append((family, None, max(tokens, 0)))
        wait_ms = (pipeline_timings or {}).get("queue_wait_ms")
        if wait_ms is not None:
            observations.append(("request_queue_wait_s", None, at_least_zero(seconds(wait_ms))))
        if self._to.is_first("ended", request_id):  # only now: a call with a wrong value may be made again
            self._to.observe(observations)

    @site
    def failed(self, request_id: str, reason: Optional[str]) -> None:
        """A request left without its natural end; one that has ended, or failed before, doesn't fail."""
        if self._to.is_first("ended", request_id):
            self._to.timings.pop(request_id)  # incomplete ones make no sample
            self._to.observe(
                [
                    ("requests_success_total", {"finished_reason": "abort"}, 1),
                    ("requests_failed_total", {"reason": failure(reason)}, 1),
                ]
            )

    @site
    def kv_waited(self, wait_s: Optional[float], connector_type: Optional[str]) -> None:
        """An autoregressive request waited for its KV blocks to be handed over; None: broken off before the end."""
        if wait_s is not None and wait_s >= 0:
            self._to.observe([("kv_wait_s", {"connector_type": connector_type or "unknown"}, wait_s)])


def failure(reason: Optional[str]) -> str:
    """One of the reasons that there are."""
    return reason if reason in FAILURES else "unknown"


def reason_text(reason: Any) -> str:
    """The text of a finish reason: vLLM has it as an enumeration or as text."""
    if isinstance(reason, enum.Enum) and isinstance(reason, str):
        return str(reason.value)
    return "" if reason is None else str(reason)
