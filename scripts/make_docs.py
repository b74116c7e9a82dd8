"""Makes docs/configuration.md of the tables of settings. See scripts/make-docs."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "docs" / "configuration.md"
ROW = re.compile(r'SETTING\((\w+),\s*(\w+),\s*"([^"]*)",\s*"([^"]*)",\s*(restart|reload),\s*"([^"]*)"\)')

KINDS = {
    "text": "any text",
    "path": "a file's path",
    "endpoint": "`ipc:///run/x` or `tcp://host:5577`; to bind, the host is an address or `*`",
    "endpoints": "endpoints to connect to, separated by commas; empty: none",
    "address": "`127.0.0.1:9464` or `[::1]:9464`",
    "level": "`debug`, `info`, `warn` or `error`",
    "duration": "a whole number with its unit: `250ms`, `2s`, `1m`, `24h`",
    "seconds": "the same; without a unit it is seconds: `10`",
    "count": "a whole number",
    "bytes": "a whole number, of bytes or with a unit: `64KiB`, `1MiB`, `2GiB`",
    "flag": "`true` or `false`",
}

START = """\
# Configuration

<!-- Made by scripts/make-docs of agent/agent_settings.def and hub/hub_settings.def: change those. -->

A setting's value comes from the first of these that has one:

1. its flag, `--commit-period 2s`
2. its variable, `STATSBUS_AGENT_COMMIT_PERIOD=2s`
3. the file that `--config FILE` or the variable `STATSBUS_AGENT_CONFIG` (`STATSBUS_HUB_CONFIG`) names
4. its default

The file is YAML, one map of names and values:

    # agent.yaml
    hub: tcp://hub-a:5577, tcp://hub-b:5577
    commit_period: 2s

A name that is unknown or comes twice, a value that cannot be, and a second document are errors that say where, also when a flag
or variable overrules them. The daemon doesn't start then:

    statsbus-agent: agent.yaml:3: commit_period: '2' needs a unit: ms, s, m or h

Variables that no setting has are ignored: Kubernetes makes some, such as `STATSBUS_HUB_PORT` for a service `statsbus-hub`.

**`--check-config`** reads all of it, and the catalog and views that it names, opens and makes nothing else, prints every setting with
who said so, and exits 0; or says what is wrong and exits 1. What it prints is itself a file for `--config`.

**`--health`** asks the daemon that runs with these settings for its `/healthz`, and exits 0 when that is well; or says what is wrong
and exits 1. It is for health checks of containers, which have the daemon's variables, so it finds the address by itself.

**SIGHUP** reads file and variables anew. Settings marked *at once* change in the running process, and the log says which did
(`setting changed`); one that differs and isn't so marked is logged as `setting needs a restart`. A file with any fault changes
nothing (`settings not reloaded`). Flags keep winning. What is taken out of the file has its default again.
"""


@dataclass
class Setting:
    name: str
    kind: str
    default: str
    range: str
    change: str
    help: str


def read_settings(path: Path) -> list[Setting]:
    """The rows of a .def file. A line that looks like a row and can't be read is an error."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    rows = [line for line in text.splitlines() if line.strip()]
    found = []
    for row in rows:
        match = ROW.fullmatch(row.strip())
        if not match or match[2] not in KINDS:
            raise ValueError(f"{path.name}: not a row of settings: {row}")
        found.append(Setting(*match.groups()))
    return found


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def words(range_: str) -> str:
    least, _, most = range_.partition("..")
    return f"{least} to {most}" if least and most else f"at least {least}" if least else f"at most {most}" if most else ""


def table(settings: list[Setting], prefix: str) -> str:
    rows = [["name", "flag", "variable", "kind", "default", "range", "SIGHUP", "meaning"], ["---"] * 8]
    for one in settings:
        rows.append([code(one.name), code("--" + one.name.replace("_", "-")), code(prefix + one.name.upper()), one.kind,
                     code(one.default), words(one.range), "at once" if one.change == "reload" else "restart",
                     one.help.replace("|", "\\|")])
    return "".join("|" + "".join(f" {cell} |" if cell else " |" for cell in row) + "\n" for row in rows)


def page(folder: Path = REPOSITORY) -> str:
    agent = read_settings(folder / "agent" / "agent_settings.def")
    hub = read_settings(folder / "hub" / "hub_settings.def")
    used = [kind for kind in KINDS if any(one.kind == kind for one in agent + hub)]
    kinds = "| kind | is |\n| --- | --- |\n" + "".join(f"| {kind} | {KINDS[kind]} |\n" for kind in used)
    return "\n".join([START, "## Settings of the agent\n", table(agent, "STATSBUS_AGENT_"), "## Settings of the hub\n",
                      table(hub, "STATSBUS_HUB_"), "## Kinds\n", kinds])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when the page is not what it would be")
    is_check = parser.parse_args().check
    text = page()
    if not is_check:
        PAGE.write_text(text)
        return 0
    if PAGE.exists() and PAGE.read_text() == text:
        return 0
    print("docs/configuration.md is not what scripts/make-docs makes", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
