"""What the hub must say, as plainly as it can be said: every scrape is computed from nothing, from lists of contributions.

Written from the design (sources, contributions, views), not from the hub. Time is passed in, so that it has no clock of its own; what
depends on time more finely than the hub looks at its clock (`EARLY`, `LATE`) is `MAYBE`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

Labels = tuple[tuple[str, str], ...]
Lines = dict[tuple[str, Labels], float]  # (sample name, labels by name) to value

ALWAYS = ("service_name", "model_name")
SOURCE_KEY = ("service_name", "job_name", "dp_rank", "stage", "replica")
EARLY, LATE = 0.2, 2.0  # seconds: what is due at t happens between t - EARLY and t + LATE (the hub looks once a second)
FOREIGN = frozenset({"instance", "job", "pod", "namespace", "container", "endpoint", "service", "le", "quantile", "window"})

SUM, MEAN, MAX, INFO, MERGE = "sum", "mean", "max", "info", "merge"
AGGREGATES = {
    "counter": SUM, "throughput_counter": SUM, "ratio_numerator": SUM, "ratio_denominator": SUM, "state_gauge": SUM,
    "queue_gauge": SUM, "cache_metric": MEAN, "resource_utilization_gauge": MEAN, "hotspot_resource_gauge": MAX,
    "occupancy_metric": MAX, "metadata_gauge": INFO, "histogram": MERGE, "histogram_latency": MERGE, "sla_metric": MERGE,
}
DEFAULT_QUANTILES = {"histogram_latency": (0.5, 0.95, 0.99), "sla_metric": (0.5, 0.95, 0.99)}


def labels_of(labels: dict[str, str]) -> Labels:
    """In one order, and an empty value is no label."""
    return tuple(sorted((name, value) for name, value in labels.items() if value))


@dataclass(frozen=True)
class Family:
    name: str
    type: str
    semantic: str
    role_scope: tuple[str, ...] | None = None
    quantiles: tuple[float, ...] | None = None  # None: what the semantic says

    @property
    def aggregate(self) -> str:
        return AGGREGATES[self.semantic]

    @property
    def all_quantiles(self) -> tuple[float, ...]:
        return DEFAULT_QUANTILES.get(self.semantic, ()) if self.quantiles is None else self.quantiles

    def counts(self, role: str) -> bool:
        """Whether sources of this role count where role scopes hold."""
        return not self.role_scope or role in ("", "both") or role in self.role_scope


@dataclass(frozen=True)
class Series:
    """One label set of a family; histograms with other bounds are other series."""
    family: Family
    labels: Labels = ()
    bounds: tuple[float, ...] | None = None

    @property
    def size(self) -> int:
        return len(self.bounds) + 2 if self.bounds is not None else 1


@dataclass(frozen=True)
class Derived:
    name: str
    kind: str  # "max" or "ratio"
    of: tuple[str, ...]


@dataclass(frozen=True)
class View:
    name: str
    by: tuple[str, ...] = ()
    keep: bool = False
    role_scope: bool = False
    where: tuple[tuple[str, tuple[str, ...]], ...] = ()
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    buckets: bool = True
    derived: bool = True
    rename: tuple[tuple[str, str], ...] = ()

    def has_member(self, identity: dict[str, str]) -> bool:
        return all(identity.get(label) in values for label, values in self.where)

    def row_of(self, identity: dict[str, str]) -> Labels:
        return labels_of({label: identity.get(label, "") for label in (*ALWAYS, *self.by)})

    def has_family(self, name: str) -> bool:
        def names(listed: Iterable[str]) -> bool:
            return any(is_name(each, name) for each in listed)

        return (self.allow is None or names(self.allow)) and not names(self.deny)


VIEWS = (
    View("full", keep=True, role_scope=True),
    View("instance", ("instance_id", "role")),
    View("role", ("role",), keep=True),
    View("dp", ("dp_rank", "role", "instance_id", "pod_ip")),
    View("node", ("node", "role")),
    View("pod", ("pod_ip", "role")),
    View("stage", ("stage",), keep=True),
    View("replica", ("stage", "replica")),
)


def is_name(given: str, name: str) -> bool:
    """A family's name, `_total` optional."""
    return given == name or given + "_total" == name


class Shown(enum.Enum):
    NO, YES, MAYBE = range(3)


@dataclass
class Narrow:
    """The query's filters; None: all."""
    role: set[str] | None = None
    model_name: set[str] | None = None
    service_name: set[str] | None = None
    name: set[str] | None = None

    def has_member(self, identity: dict[str, str]) -> bool:
        wanted = {"role": self.role, "model_name": self.model_name, "service_name": self.service_name}
        return all(values is None or identity.get(label, "") in values for label, values in wanted.items())

    def has_family(self, name: str) -> bool:
        return self.name is None or any(is_name(given, name) for given in self.name)


@dataclass
class Contribution:
    lineage: str
    epoch: int
    kind: str
    source: Labels
    identity: dict[str, str]  # the source's labels among them
    cells: dict[Series, list[float]] = field(default_factory=dict)
    gauges: dict[Series, float] = field(default_factory=dict)
    is_live: bool = False
    is_ended: bool = False
    snapshot: float = -math.inf  # when its gauges arrived at the agent
    session: int = 0  # the last that sent a frame of it
    last_number: int = 0
    named_by: int = 0  # the last session that defined it
    left_out_first: float | None = None  # when the first session began that left it out, of those since one named it
    left_out_by: float | None = None  # the same for the first of which that is certain

    @property
    def role(self) -> str:
        return self.identity.get("role", "")


@dataclass
class Lineage:
    session: int = 0
    heard: float = -math.inf
    began: float = -math.inf
    is_closed: bool = False


@dataclass
class Row:
    """One group of a view."""
    labels: Labels
    number: int  # a row that went and comes back is another one
    members: list[Contribution] = field(default_factory=list)
    retired: list[tuple[dict[str, str], dict[Series, list[float]]]] = field(default_factory=list)  # identity and cells
    live_from: float = -math.inf  # a member was last known to live between these two
    live_until: float = -math.inf
    emptied: float = -math.inf  # when the last member was forgotten

    @property
    def is_live(self) -> bool:
        return any(member.is_live for member in self.members)


class Model:
    def __init__(self, views: Iterable[View] = VIEWS, derived: Iterable[Derived] = (), agent_timeout: float = 15.0,
                 linger: float = 300.0, is_scoped: bool = True, closed_after: float = 24 * 3600.0) -> None:
        self.views = {view.name: view for view in views}
        self.derived = list(derived)
        self.agent_timeout = agent_timeout
        self.linger = linger
        self.closed_after = closed_after
        self.is_scoped = is_scoped
        self.now = -math.inf
        self.lineages: dict[str, Lineage] = {}
        self.contributions: dict[tuple[str, int], Contribution] = {}
        self.rows: dict[str, dict[Labels, Row]] = {name: {} for name in self.views}
        self.final: list[Contribution] = []  # left out for so long that they are retired; they must not be named again
        self.unended: dict[Labels, float] = {}  # by source: when it last had a contribution that may not have ended
        self.lived: dict[Labels, float] = {}  # by source: when it last had one that surely lived, or else when it was met
        self._n_rows = 0
        self._n_sessions = 0

    # What happens

    def hello(self, lineage: str) -> int:
        """The new session's number."""
        self._n_sessions += 1
        self.lineages[lineage] = Lineage(self._n_sessions, self.now, self.now)
        for each in self._of(lineage):
            each.left_out_first = self.now if each.left_out_first is None else each.left_out_first
        return self._n_sessions

    def close(self, lineage: str) -> None:
        """All that it counted is retired."""
        self.lineages[lineage].is_closed = True
        for each in self._of(lineage):
            self.forget(each)

    def may_be_closed(self, lineage: str, since: float, until: float) -> tuple[bool, bool]:
        """Whether it may, and whether it must be closed at a moment between these two."""
        at = self.lineages[lineage].heard + self.closed_after if lineage in self.lineages else math.inf
        # One that has nothing is not remembered, and need not be.
        has_any = bool(self._of(lineage)) or any(each.lineage == lineage for each in self.final)
        return until >= at - EARLY, since > at + LATE and has_any

    def heard(self, lineage: str) -> None:
        self.lineages[lineage].heard = self.now

    def define(self, lineage: str, epoch: int, kind: str, source: dict[str, str], identity: dict[str, str]) -> Contribution:
        known = self.contributions.get((lineage, epoch))
        if known:
            known.last_number = 0  # the session is new
            known.named_by = self.lineages[lineage].session
            known.left_out_first = known.left_out_by = None
            return known
        made = Contribution(lineage, epoch, kind, labels_of(source), {k: v for k, v in {**identity, **source}.items() if v})
        made.named_by = self.lineages[lineage].session
        self.contributions[lineage, epoch] = made
        for view in self.views.values():
            if view.has_member(made.identity):
                self._row(view, made.identity).members.append(made)
        return made

    def frame(self, contribution: Contribution, number: int, cells: dict[Series, list[float]], gauges: dict[Series, float],
              age: float, is_live: bool) -> None:
        self.heard(contribution.lineage)
        for series, values in cells.items():
            have = contribution.cells.setdefault(series, [0.0] * series.size)
            contribution.cells[series] = [max(pair) for pair in zip(have, values)]
        if number <= contribution.last_number:
            return  # late: its counts alone
        contribution.last_number = number
        contribution.session = self.lineages[contribution.lineage].session
        if not is_live:
            self._bury(contribution, contribution.is_ended)
            return
        contribution.gauges = dict(gauges)
        contribution.snapshot = self.now - age
        contribution.is_live = True
        contribution.is_ended = False
        self._touch(contribution)

    def end(self, contribution: Contribution) -> None:
        self.heard(contribution.lineage)
        self._bury(contribution, True)

    def forget(self, contribution: Contribution) -> None:
        """Also what happens to every contribution of a lineage that was closed, and to what is left out for long."""
        for row in self._rows_of(contribution):
            row.members.remove(contribution)
            if contribution.is_live:
                row.live_from = row.live_until = self.now
            row.retired.append((contribution.identity, contribution.cells))
            row.emptied = self.now
        del self.contributions[contribution.lineage, contribution.epoch]

    def tick(self, now: float) -> None:
        """Time goes on: agents that were silent are buried, what is final is retired, rows whose linger is over go."""
        self.now = now
        for key, lineage in self.lineages.items():
            if not lineage.is_closed and now > lineage.heard + self.closed_after + LATE:
                self.close(key)
        for each in list(self.contributions.values()):
            died = self._dies_at(each)
            if each.is_live and now > died + LATE:
                self._bury(each, False, (died - EARLY, died + LATE))
            self._judge_left_out(each)
        for each in self.contributions.values():
            if each.is_live or not each.is_ended:
                self.unended[each.source] = now
            if each.is_live and now < self._dies_at(each) - EARLY:
                self.lived[each.source] = now
            self.lived.setdefault(each.source, now)
        for view in self.views.values():
            rows = self.rows[view.name]
            for labels, row in list(rows.items()):
                if any(each.is_live and now < self._dies_at(each) - EARLY for each in row.members):
                    row.live_from = row.live_until = now
                elif not row.members and not view.keep and self._shown(view, row) is Shown.NO and now > row.emptied + LATE:
                    del rows[labels]

    # What is so

    def is_settled(self) -> bool:
        """No burial is due about now, and no source has two contributions whose snapshots are of nearly one age."""
        is_due = any(self.now >= self._dies_at(each) - EARLY for each in self.contributions.values() if each.is_live)
        return not is_due and not self.rivals()

    def rivals(self) -> list[list[Contribution]]:
        """Sources' live contributions with snapshots of nearly one age: which of them is shown can't be said."""
        out = []
        for group in self._by_source().values():
            young = sorted((c for c in group if c.is_live and c.gauges), key=lambda c: -c.snapshot)
            if len(young) > 1 and young[0].snapshot - young[1].snapshot <= EARLY:
                out.append(young)
        return out

    def may_join(self, identity: dict[str, str]) -> bool:
        """Whether it is certain which rows a contribution with this identity would find."""
        for view in self.views.values():
            row = self.rows[view.name].get(view.row_of(identity))
            if not row or view.keep or self._shown(view, row) is Shown.YES:
                continue
            if all(self.may_be_retired(member) for member in row.members):
                return False
        return True

    def may_be_retired(self, contribution: Contribution) -> bool:
        """Whether it may be final already: it is taken out once that is certain."""
        first = contribution.left_out_first
        is_left_out = first is not None and self.now >= first + self.closed_after - EARLY
        return is_left_out or self.may_be_closed(contribution.lineage, self.now, self.now)[0]

    def source_may_be_gone(self, source: Labels) -> bool:
        """It has not lived for about the linger: once its contributions have gone, its row goes, and may begin anew."""
        return self.now >= self.lived[source] + self.linger - EARLY

    def source_is_gone(self, source: Labels) -> bool:
        return self.now > self.unended[source] + self.linger + LATE

    def shown_of(self) -> dict[tuple[str, Labels], Contribution]:
        """By source: whose gauges count."""
        out = {}
        for source, group in self._by_source().items():
            live = [c for c in group if c.is_live and c.gauges]
            if live:
                out[source] = max(live, key=lambda c: c.snapshot)
        return out

    def scrape(self, view_name: str, narrow: Narrow | None = None) -> Iterator[tuple[Row, Shown, Lines]]:
        view = self.views[view_name]
        shown = set(map(id, self.shown_of().values()))
        for row in self.rows[view_name].values():
            yield row, self._shown(view, row), self._row_lines(view, row, narrow or Narrow(), shown)

    # Rows

    def _row(self, view: View, identity: dict[str, str]) -> Row:
        labels = view.row_of(identity)
        row = self.rows[view.name].get(labels)
        if not row:
            self._n_rows += 1
            row = self.rows[view.name][labels] = Row(labels, self._n_rows)
        return row

    def _rows_of(self, contribution: Contribution) -> list[Row]:
        return [self.rows[view.name][view.row_of(contribution.identity)] for view in self.views.values()
                if view.has_member(contribution.identity)]

    def _shown(self, view: View, row: Row) -> Shown:
        if view.keep or row.is_live:
            return Shown.YES
        if self.now < row.live_from + self.linger - EARLY:
            return Shown.YES
        return Shown.NO if self.now > row.live_until + self.linger + LATE else Shown.MAYBE

    # Life

    def _dies_at(self, contribution: Contribution) -> float:
        lineage = self.lineages[contribution.lineage]
        silent = lineage.heard + self.agent_timeout
        is_left_out = contribution.session != lineage.session
        return min(silent, lineage.began + self.agent_timeout) if is_left_out else silent

    def _judge_left_out(self, contribution: Contribution) -> None:
        """What the lineage's session has not named counts as ended, and becomes final."""
        lineage = self.lineages[contribution.lineage]
        has_session = self.now < lineage.heard + self.agent_timeout - EARLY
        if contribution.named_by == lineage.session or not has_session or self.now <= lineage.began + self.agent_timeout + LATE:
            return
        if contribution.left_out_by is None:
            contribution.left_out_by = lineage.began
        contribution.is_ended = True
        if self.now > contribution.left_out_by + self.closed_after + LATE:
            self.forget(contribution)
            self.final.append(contribution)

    def _of(self, lineage: str) -> list[Contribution]:
        return [each for each in self.contributions.values() if each.lineage == lineage]

    def _touch(self, contribution: Contribution) -> None:
        for row in self._rows_of(contribution):
            row.live_from = row.live_until = self.now

    def _bury(self, contribution: Contribution, is_ended: bool, between: tuple[float, float] | None = None) -> None:
        if contribution.is_live:
            low, high = between or (self.now, self.now)
            for row in self._rows_of(contribution):
                row.live_from = max(row.live_from, low)
                row.live_until = max(row.live_until, high)
        contribution.is_live = False
        contribution.is_ended = is_ended
        contribution.gauges = {}

    def _by_source(self) -> dict[tuple[str, Labels], list[Contribution]]:
        out: dict[tuple[str, Labels], list[Contribution]] = {}
        for each in self.contributions.values():
            out.setdefault((each.kind, each.source), []).append(each)
        return out

    # Numbers

    def _row_lines(self, view: View, row: Row, narrow: Narrow, shown: set[int]) -> Lines:
        def takes_part(family: Family, identity: dict[str, str]) -> bool:
            is_scoped = view.role_scope and self.is_scoped
            return narrow.has_member(identity) and (not is_scoped or family.counts(identity.get("role", "")))

        parts: dict[Series, list[list[float]]] = {}
        for identity, cells in [*((m.identity, m.cells) for m in row.members), *row.retired]:
            for series, values in cells.items():
                if takes_part(series.family, identity):
                    parts.setdefault(series, []).append(values)
        gauges: dict[Series, list[float]] = {}
        for member in row.members:
            if id(member) in shown:
                for series, value in member.gauges.items():
                    if takes_part(series.family, member.identity):
                        gauges.setdefault(series, []).append(value)
        totals = {series: [math.fsum(column) for column in zip(*values)] for series, values in parts.items()}
        return Printer(view, row, narrow).print(totals, gauges, self.derived)


class Printer:
    """Turns the numbers of a row into the lines of a scrape."""

    def __init__(self, view: View, row: Row, narrow: Narrow) -> None:
        self.view = view
        self.narrow = narrow
        self.lines: Lines = {}
        base = dict(row.labels)
        self.base = {**base, **{new: base[old] for new, old in view.rename if old in base}}
        self.reserved = FOREIGN | set(view.by) | set(ALWAYS) | {new for new, _ in view.rename}

    def print(self, totals: dict[Series, list[float]], gauges: dict[Series, list[float]], derived: list[Derived]) -> Lines:
        for series, values in gauges.items():
            self._put(series.family.name, series.family.name, series.labels, aggregate(series.family.aggregate, values))
        for series, (value,) in ((s, v) for s, v in totals.items() if s.bounds is None):
            self._put(series.family.name, series.family.name, series.labels, value)
        for family, labels, bounds, cells in merged(totals):
            self._put_histogram(family, labels, bounds, cells)
        if self.view.derived:
            for each in derived:
                self._put_derived(each, totals, gauges)
        return self.lines

    def _put(self, family: str, name: str, labels: Labels, value: float, **more: str) -> None:
        if not self.view.has_family(family) or not self.narrow.has_family(family):
            return
        own = {("exported_" + label if label in self.reserved else label): text for label, text in labels}
        self.lines[name, labels_of({**self.base, **own, **more})] = value

    def _put_histogram(self, family: Family, labels: Labels, bounds: tuple[float, ...], cells: list[float]) -> None:
        count = math.fsum(cells[:-1])
        if self.view.buckets:
            for i, le in enumerate([*map(repr, bounds), "+Inf"]):
                self._put(family.name, family.name + "_bucket", labels, math.fsum(cells[:i + 1]), le=le)
        self._put(family.name, family.name + "_sum", labels, cells[-1])
        self._put(family.name, family.name + "_count", labels, count)
        if not self.view.derived or not family.all_quantiles:
            return
        for q in family.all_quantiles:
            value = quantile(q, bounds, cells[:-1])
            if value is not None:
                name = f"{family.name}_{quantile_name(q)}"
                self._put(name, name, labels, value, quantile=f"{q:g}")
        if count > 0:
            self._put(family.name + "_mean", family.name + "_mean", labels, cells[-1] / count)

    def _put_derived(self, derived: Derived, totals: dict[Series, list[float]], gauges: dict[Series, list[float]]) -> None:
        if derived.kind == "max":
            for series, values in gauges.items():
                if series.family.name == derived.of[0]:
                    self._put(derived.name, derived.name, series.labels, max(values))
            return
        above = {s.labels: v[0] for s, v in totals.items() if s.family.name == derived.of[0]}
        below = {s.labels: v[0] for s, v in totals.items() if s.family.name == derived.of[1]}
        for labels, denominator in below.items():
            if denominator > 0 and labels in above:
                self._put(derived.name, derived.name, labels, min(max(above[labels] / denominator, 0.0), 1.0))


def aggregate(how: str, values: list[float]) -> float:
    if how == SUM:
        return math.fsum(values)
    return math.fsum(values) / len(values) if how == MEAN else max(values)


def merged(totals: dict[Series, list[float]]) -> Iterator[tuple[Family, Labels, tuple[float, ...], list[float]]]:
    """Histograms, on the bounds that all of a family's have."""
    families: dict[str, list[Series]] = {}
    for series in totals:
        if series.bounds is not None:
            families.setdefault(series.family.name, []).append(series)
    for group in families.values():
        bounds = tuple(sorted(set.intersection(*(set(series.bounds or ()) for series in group))))
        by_labels: dict[Labels, list[Series]] = {}
        for series in group:
            by_labels.setdefault(series.labels, []).append(series)
        for labels, twins in by_labels.items():
            cells = [0.0] * (len(bounds) + 2)
            for series in twins:
                assert series.bounds is not None
                for upper, count in zip([*series.bounds, math.inf], totals[series]):
                    cells[next((i for i, bound in enumerate(bounds) if bound >= upper), len(bounds))] += count
                cells[-1] += totals[series][-1]
            yield group[0].family, labels, bounds, cells


def quantile_name(q: float) -> str:
    """0.5 is p50, 0.999 is p99_9."""
    return "p" + f"{round(q * 100, 10):g}".replace(".", "_")


def quantile(q: float, bounds: tuple[float, ...], counts: list[float]) -> float | None:
    """As Prometheus' histogram_quantile; counts of each bucket for itself, the last is +Inf."""
    total = math.fsum(counts)
    if total == 0 or not bounds:
        return None
    rank, below = q * total, 0.0
    for i, upper in enumerate(bounds):
        if below + counts[i] >= rank:
            if i == 0 and upper <= 0:
                return upper
            lower = bounds[i - 1] if i > 0 else 0.0
            return lower + (upper - lower) * ((rank - below) / counts[i])
        below += counts[i]
    return bounds[-1]
