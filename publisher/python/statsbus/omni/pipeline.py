"""What an orchestrator of vLLM-Omni, or of a pipeline like it, calls."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from .audio import Audio, Speech
from .realtime import Realtime
from .recorder import Recorder
from .requests import Requests
from .stages import Stages
from .transfers import ReplicaOf, Transfers


class Pipeline:
    """
    The observation sites of one pipeline, in groups. They may be called from any thread, never wait and never raise.

    identity    what names the pipeline: fields of `Source` such as service_name, job_name, instance_id
    log_stats   without it nothing is made, and no site does anything
    replica_of  for transfers: which replica of a stage has a request
    options     of `Publisher`: endpoints, buckets, ...
    """

    def __init__(
        self,
        model_name: str,
        identity: Mapping[str, Any],
        *,
        log_stats: bool = True,
        replica_of: Optional[ReplicaOf] = None,
        **options: Any,
    ) -> None:
        self._recorder = Recorder({**identity, "model_name": model_name}, **options) if log_stats else None
        self.requests = Requests(self._recorder)
        self.stages = Stages(self._recorder)
        self.audio = Audio(self._recorder)
        self.speech = Speech(self._recorder)
        self.transfers = Transfers(self._recorder, replica_of)
        self._realtime: Optional[Realtime] = None

    @property
    def realtime(self) -> Realtime:
        """Made when it is first asked for: its families exist at zero only where there are such sessions."""
        if self._realtime is None:
            self._realtime = Realtime(self._recorder)
        return self._realtime

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Waits until the agent has all of it; False if it hasn't in time."""
        return self._recorder is None or self._recorder.publisher.flush(timeout_s)

    def close(self, timeout_s: float = 5.0) -> bool:
        """The pipeline ends in order: its gauges leave."""
        return self._recorder is None or self._recorder.publisher.close(timeout_s=timeout_s)

    def counts(self) -> Dict[str, int]:
        """The publisher's counts, and what went wrong here; nothing when statistics are off."""
        return self._recorder.counts() if self._recorder else {}
