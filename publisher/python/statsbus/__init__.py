"""statsbus: publishes the statistics of an LLM engine to the agent of its node, at next to no cost for the engine."""

from .publisher import Publisher
from .wire import Family, Source

__version__ = "0.1.0"
__all__ = ["Family", "Publisher", "Source", "__version__"]
