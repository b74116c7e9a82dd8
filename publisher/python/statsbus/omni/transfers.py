"""Transfers from one stage to the next, one observation a hop."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from .recorder import Kept, Recorder, Sites, at_least_zero, seconds, site

ReplicaOf = Callable[[int, str], Optional[int]]
"""The replica of a stage that has a request; None where that is not known (any more)."""


class Transfers(Sites):
    """A hop of which either replica is unknown makes no sample: it could only be counted at a wrong one."""

    def __init__(self, recorder: Optional[Recorder], replica_of: Optional[ReplicaOf] = None) -> None:
        super().__init__(recorder)
        self.replica_of = replica_of
        self._receivers: Kept[int] = Kept()  # a binding may be gone when the last hop is told of

    @site
    def sent(self, request_id: str, from_stage: int, to_stage: int, *, size_bytes: int, tx_ms: float) -> None:
        labels = self._edge(request_id, from_stage, to_stage)
        if labels is not None:
            self._to.observe(
                [
                    ("transfer_size_bytes", labels, at_least_zero(size_bytes)),
                    ("transfer_tx_s", labels, at_least_zero(seconds(tx_ms))),
                ]
            )

    @site
    def received(
        self,
        request_id: str,
        from_stage: int,
        to_stage: int,
        *,
        rx_ms: float,
        in_flight_ms: float,
        to_replica: Optional[int] = None,
    ) -> None:
        """to_replica: the receiver, where it says who it is."""
        if to_replica is not None:
            self._receivers.put((to_stage, request_id), to_replica)
        labels = self._edge(request_id, from_stage, to_stage)
        if labels is not None:
            self._to.observe(
                [
                    ("transfer_rx_s", labels, at_least_zero(seconds(rx_ms))),
                    ("transfer_in_flight_s", labels, at_least_zero(seconds(in_flight_ms))),
                ]
            )

    def _edge(self, request_id: str, from_stage: int, to_stage: int) -> Optional[Dict[str, str]]:
        from_replica, to_replica = self._replica(from_stage, request_id), self._replica(to_stage, request_id)
        return None if from_replica is None or to_replica is None else edge(from_stage, from_replica, to_stage, to_replica)

    def _replica(self, stage: int, request_id: str) -> Optional[int]:
        known = self._receivers.get((stage, request_id))
        return known if known is not None or self.replica_of is None else self.replica_of(stage, request_id)


def edge(from_stage: Any, from_replica: Any, to_stage: Any, to_replica: Any) -> Dict[str, str]:
    return {
        "from_stage": str(from_stage),
        "from_replica": str(from_replica),
        "to_stage": str(to_stage),
        "to_replica": str(to_replica),
    }
