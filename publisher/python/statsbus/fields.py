"""Which fields the records of a recorded stream have, as the catalog's feeds name them."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Mapping

PARTS = ("scheduler_stats", "iteration_stats", "mm_cache_stats")
EVENTS = {"sleep": ("sleep", "level"), "admission": ("reason",)}


def fields_of(entries: Iterable[Mapping[str, Any]]) -> Dict[str, Any]:
    """Path to an example value, by path; one that says something is preferred to None, 0 or ''."""
    found: Dict[str, Any] = {}
    for entry in entries:
        kind = entry["kind"]
        if kind == "record":
            _walk("step", {name: entry.get(name) for name in PARTS}, found)
        elif kind in EVENTS:
            _walk(f"event.{kind}", {name: entry.get(name) for name in EVENTS[kind]}, found)
    return {path: value for path, value in sorted(found.items()) if not _is_only_a_prefix(path, value, found)}


def _walk(path: str, value: Any, found: Dict[str, Any]) -> None:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            _walk(f"{path}.{key}", item, found)
    elif isinstance(value, (list, tuple)) and value:
        for item in value:
            _walk(f"{path}[]", item, found)
    elif not found.get(path):
        found[path] = found.get(path) if value is None else value


def _is_only_a_prefix(path: str, value: Any, found: Mapping[str, Any]) -> bool:
    """A map or list that was nil or empty now and then, and has its content listed otherwise."""
    return not value and any(other.startswith((path + ".", path + "[")) for other in found)
