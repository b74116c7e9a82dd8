"""Engine objects to msgpack: what msgspec doesn't know by itself, and what to do when a field cannot be encoded."""

from __future__ import annotations

import dataclasses
import enum
import numbers
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import msgspec

DEPTH = 11  # of a part of a step; the message, the record and its content take the other levels of 16

Observation = Tuple[str, Optional[Dict[str, str]], Any]


def Encoder() -> msgspec.msgpack.Encoder:
    """An encoder for engine objects: one call encodes a whole record, and it may be shared by threads."""
    return msgspec.msgpack.Encoder(enc_hook=_foreign)


def _foreign(value: Any) -> Any:
    """What msgspec doesn't encode: plain objects by their fields, numpy's as Python's, anything else as text."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "__dict__"):
        return {name: field for name, field in vars(value).items() if not name.startswith("_")}
    return str(value)


def salvage(value: Any, depth: int = DEPTH) -> Any:
    """A copy that encodes: fields, entries and elements that cannot be encoded are left out."""
    if isinstance(value, enum.Enum):
        value = value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    elif (
        not isinstance(value, (Mapping, str, bytes, list, tuple, set, frozenset, numbers.Number)) and value is not None
    ):
        value = _foreign(value)
    if isinstance(value, Mapping):
        items = ((str(key), _try(item, depth - 1)) for key, item in value.items())
        return {key: item for key, item in items if item is not msgspec.UNSET}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [item for item in (_try(item, depth - 1) for item in value) if item is not msgspec.UNSET]
    msgspec.msgpack.encode(value)
    return value


def _try(value: Any, depth: int) -> Any:
    if depth < 1:
        return msgspec.UNSET
    try:
        return salvage(value, depth)
    except Exception:
        return msgspec.UNSET


def _check_numbers(family: str, values: Iterable[Any]) -> None:
    for number in values:
        if not isinstance(number, (int, float)):
            raise TypeError(f"{family}: {number!r} is not a number")


def _distribution(family: str, value: Mapping[str, Any]) -> Dict[str, Any]:
    """What a cumulative histogram has counted: {"le": bounds, "buckets": counts up to each and of all, "sum": sum}."""
    if set(value) != {"le", "buckets", "sum"}:
        raise TypeError(f"{family}: a distribution has le, buckets and sum, this one {sorted(map(str, value))}")
    le, buckets, total = list(value["le"]), list(value["buckets"]), value["sum"]
    _check_numbers(family, [*le, *buckets, total])
    return {"le": le, "buckets": buckets, "sum": total}


def observations_of(observations: Iterable[Sequence[Any]]) -> List[Observation]:
    """Checked: an agent refuses the whole message for one observation of a wrong shape."""
    out: List[Observation] = []
    for family, labels, value in observations:
        if not isinstance(family, str):
            raise TypeError(f"family {family!r} is not a name")
        if hasattr(value, "tolist"):
            value = value.tolist()
        if isinstance(value, Mapping):
            value = _distribution(family, value)
        else:
            _check_numbers(family, value if isinstance(value, (list, tuple)) else (value,))
        out.append((family, {str(k): str(v) for k, v in labels.items()} if labels else None, value))
    return out
