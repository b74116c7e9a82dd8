"""Audio that the pipeline generates, and streams of speech."""

from __future__ import annotations

from typing import Any, Iterable, List, Mapping, Optional, Sequence

from ..encoding import Observation
from .recorder import Sites, at_least_zero, seconds, site

SAMPLE_RATE = 24000
SAMPLE_RATE_KEYS = ("output_sample_rate", "audio_sample_rate", "sample_rate", "sampling_rate", "sr")
SAMPLE_BYTES = 2  # PCM of 16 bits
THRESHOLD_S = 0.1  # a shorter silence is hardly heard
ABORTS = frozenset({"cancelled", "closed", "engine_dead", "error"})


class Audio(Sites):
    @site
    def first_packet(
        self, request_id: str, stage: Any, replica: Any, arrival_s: Optional[float], now_s: float
    ) -> None:
        """The first audio of a request leaves, not counting a header; later packets are none. Both by one clock."""
        if replica is None or arrival_s is None or arrival_s <= 0:
            return
        if self._to.is_first("audio", request_id):
            self._to.observe([("audio_ttfp_s", None, at_least_zero(now_s - arrival_s))], stage, replica)

    @site
    def finished(
        self, request_id: str, stage: Any, replica: Any, *, gen_time_ms: float, frames: int, output: Any = None
    ) -> None:
        """A request whose output is audio has ended. output: what says its sample rate."""
        if replica is None or not self._to.is_first("audio finished", request_id):
            return
        if frames <= 0:
            self.skipped(stage, replica, "no_audio_data")
            return
        duration_s = frames / sample_rate(output)
        observations: List[Observation] = [
            ("audio_frames_total", None, frames),
            ("audio_duration_s", None, duration_s),
            ("audio_rtf", None, at_least_zero(seconds(gen_time_ms)) / duration_s),
        ]
        self._to.observe(observations, stage, replica)

    @site
    def skipped(self, stage: Any, replica: Any, reason: Optional[str]) -> None:
        """A request ended well and has no audio."""
        self._to.observe([("audio_skipped_requests_total", {"reason": reason or "unknown"}, 1)], stage, replica)

    @site
    def stream_finished(
        self,
        stage: Any,
        replica: Any,
        arrivals_s: Sequence[float],
        sizes: Sequence[int],
        *,
        rate: int = SAMPLE_RATE,
        channels: int = 1,
        thresholds_s: Iterable[float] = (THRESHOLD_S,),
    ) -> None:
        """A stream has ended by itself: when each of its chunks left, and how many bytes of PCM it had."""
        if replica is None or not arrivals_s or len(arrivals_s) != len(sizes):
            return
        silence_s = underrun_s(arrivals_s, sizes, rate * channels * SAMPLE_BYTES)
        observations: List[Observation] = [("audio_underrun_s", None, silence_s)]
        for threshold_s in thresholds_s:
            if silence_s <= threshold_s:
                labels = {"threshold_ms": str(int(round(threshold_s * 1000)))}
                observations.append(("audio_continuity_ok_total", labels, 1))
        self._to.observe(observations, stage, replica)


class Speech(Sites):
    """Generators of speech streams, once each."""

    @site
    def completed(self) -> None:
        self._to.observe([("speech_stream_completed_total", None, 1)])

    @site
    def aborted(self, reason: str) -> None:
        self._to.observe([("speech_stream_aborted_total", {"reason": abort(reason)}, 1)])


def abort(reason: str) -> str:
    """One of the reasons that there are."""
    return reason if reason in ABORTS else "error"


def underrun_s(arrivals_s: Sequence[float], sizes: Sequence[int], bytes_per_s: int) -> float:
    """
    The longest silence of a player that starts with the first chunk and plays in real time: what it would have played
    when a chunk comes, less what it had got before.
    """
    if bytes_per_s <= 0:
        return 0.0
    longest, received = 0.0, 0
    for arrival_s, size in zip(arrivals_s, sizes):
        if received:
            longest = max(longest, arrival_s - arrivals_s[0] - received / bytes_per_s)
        received += size
    return longest


def sample_rate(output: Any) -> int:
    """The first positive rate under one of the keys, of a map, an object, or a list of such."""
    for source in output if isinstance(output, (list, tuple)) else (output,):
        for key in SAMPLE_RATE_KEYS if source is not None else ():
            value = source.get(key) if isinstance(source, Mapping) else getattr(source, key, None)
            rate = scalar(value)
            if rate > 0:
                return rate
    return SAMPLE_RATE


def scalar(value: Any) -> int:
    """A number, a tensor with one, or the first positive one of a list of them; 0 for anything else."""
    if isinstance(value, (list, tuple)):
        return next((rate for rate in map(scalar, value) if rate > 0), 0)
    try:
        return int(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return 0
