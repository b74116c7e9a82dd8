"""Scrapes of a hub become the text of a table. Knows no terminal, network or clock: times come in as parameters."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from daemons import samples

WINDOW_S = 6.0  # what a rate looks back; agents report counters once a second
NAME_MIN = 24  # with what follows it fills 78 of the usual 80 columns
CELL = 6
MISSING = "-"  # a number that nobody said, which is not 0

Row = tuple[str, tuple[str, ...]]  # a view and its row's name, one part a label


def _count(value: float) -> str:
    return f"{value:.0f}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _milliseconds(value: float) -> str:
    return _number(1000 * value)


class Column(NamedTuple):
    title: str
    family: str
    text: Callable[[float], str]
    is_rate: bool = False


COLUMNS = (
    Column("run", "vllm:num_requests_running", _count),
    Column("wait", "vllm:num_requests_waiting", _count),
    Column("KV%", "vllm:kv_cache_usage_perc", _percent),
    Column("in", "vllm:prompt_tokens_total", _number, is_rate=True),
    Column("out", "vllm:generation_tokens_total", _number, is_rate=True),
    Column("p50", "vllm:time_to_first_token_seconds_p50", _milliseconds),
    Column("p99", "vllm:time_to_first_token_seconds_p99", _milliseconds),
    Column("p50", "vllm:inter_token_latency_seconds_p50", _milliseconds),
    Column("p99", "vllm:inter_token_latency_seconds_p99", _milliseconds),
)
# What stands above so many columns.
GROUPS = (("", 3), ("tokens/s", 2), ("TTFT, ms", 2), ("ITL, ms", 2))
# Each view, its heading, and the labels that tell its rows apart beside service and model.
VIEWS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("full", "service", ()),
    ("role", "role", ("role",)),
    ("node", "node", ("node", "role")),
    ("instance", "instance", ("instance_id", "role")),
)
SOURCES_UP = "statsbus_source_up"  # these two are in `full` alone
AGENTS = "statsbus_hub_agents"


def families() -> list[str]:
    """What a scrape has to hold."""
    return [*(column.family for column in COLUMNS), SOURCES_UP, AGENTS]


class Scrape(NamedTuple):
    at: float  # seconds of a clock that never goes back
    values: dict[tuple[Row, str], float]  # by row and family
    rows: list[Row]  # in the order of VIEWS, sorted by name


def read(at: float, texts: Mapping[str, str]) -> Scrape:
    """`texts` holds what the hub printed of each view."""
    values: dict[tuple[Row, str], float] = {}
    rows: list[Row] = []
    wanted = {column.family for column in COLUMNS}
    for view, _, names in VIEWS:
        seen: set[Row] = set()
        for family, labels, value in samples(texts[view]):
            if family not in wanted:
                continue
            row = (view, (labels.get("service_name", ""), labels.get("model_name", ""), *(labels.get(name, "") for name in names)))
            seen.add(row)
            # A family's own labels (a reason, a position) split it further; the row's number is their sum.
            values[row, family] = values.get((row, family), 0.0) + value
        rows += sorted(seen)
    return Scrape(at, values, rows)


class Watch:
    """The last scrapes of one hub."""

    def __init__(self) -> None:
        self._scrapes: deque[Scrape] = deque()
        self._live = self._sources = 0
        self._agents = 0.0

    def add(self, at: float, texts: Mapping[str, str]) -> None:
        self._scrapes.append(read(at, texts))
        while len(self._scrapes) > 2 and self._scrapes[1].at <= at - WINDOW_S:
            self._scrapes.popleft()
        up = [value for family, _, value in samples(texts["full"]) if family == SOURCES_UP]
        self._sources, self._live = len(up), sum(value == 1 for value in up)
        self._agents = sum(value for family, _, value in samples(texts["full"]) if family == AGENTS)

    def rate(self, row: Row, family: str) -> float | None:
        """Per second, between the latest scrape and the oldest of the window that has the number."""
        newest = self._scrapes[-1]
        value = newest.values.get((row, family))
        for scrape in self._scrapes:
            before = scrape.values.get((row, family))
            if value is not None and before is not None and scrape.at < newest.at:
                return (value - before) / (newest.at - scrape.at)
        return None

    def cells(self, row: Row) -> list[str]:
        out = []
        for column in COLUMNS:
            value = self.rate(row, column.family) if column.is_rate else self._scrapes[-1].values.get((row, column.family))
            out.append(MISSING if value is None else column.text(value))
        return out

    def lines(self) -> list[str]:
        """The table, without an end of line; nothing before the first scrape."""
        if not self._scrapes:
            return []
        rows = self._scrapes[-1].rows
        names = _names(rows)
        width = max([NAME_MIN, *(len(name) + 2 for name in names.values())])
        status = f"agents {self._agents:.0f}, live {self._live}/{self._sources}"
        out = [f"{status:{width}}" + "".join(f"{title:>{CELL * columns}}" for title, columns in GROUPS)]
        for view, heading, _ in VIEWS:
            out.append(_line(heading, width, (column.title for column in COLUMNS) if view == VIEWS[0][0] else ()))
            out += [_line("  " + names[row], width, self.cells(row)) for row in rows if row[0] == view]
        return out


def _names(rows: list[Row]) -> dict[Row, str]:
    """Parts stand below each other. Service and model are only said where they tell rows apart, or where there is nothing else."""
    is_one_service = len({row[1][:2] for row in rows}) == 1
    out: dict[Row, str] = {}
    for view, _, labels in VIEWS:
        parts = {row: row[1][2:] if is_one_service and labels else row[1] for row in rows if row[0] == view}
        widths = [max(map(len, column)) for column in zip(*parts.values())]
        for row, own in parts.items():
            out[row] = "  ".join(f"{part:{width}}" for part, width in zip(own, widths) if width).rstrip()
    return out


def _line(name: str, width: int, cells: Iterable[str]) -> str:
    return (f"{name:{width}}" + "".join(f" {cell:>{CELL - 1}}" for cell in cells)).rstrip()


def fit(above: list[str], table: list[str], below: list[str], columns: int, height: int) -> list[str]:
    """What of them a terminal of this size can show; it is the table that is shortened, and says so."""
    room = max(height - len(above) - len(below), 1)
    if len(table) > room:
        table = [*table[:room - 1], f"... {len(table) - room + 1} more lines in a higher terminal"]
    lines = [*above, *table, *below][:height]
    return [line if len(line) <= columns else line[:columns - 1] + ">" for line in lines]
