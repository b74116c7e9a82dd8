"""vLLM-Omni: the numbers of a multi-stage pipeline."""

from .pipeline import Pipeline
from .requests import RequestCounter
from .transfers import ReplicaOf

__all__ = ["Pipeline", "ReplicaOf", "RequestCounter"]
