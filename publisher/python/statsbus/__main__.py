"""python -m statsbus: plays recorded engine streams, and says what is in them."""

from __future__ import annotations

import argparse
import collections
import logging
import sys
from typing import List, Optional

from . import __version__
from .fields import fields_of
from .replay import Options, play
from .stream import StreamError, entries

IDENTITY = (
    ("--service", "service_name", "service that the engine belongs to"),
    ("--job-name", "job_name", "name of the engine that survives its restarts"),
    ("--instance-id", "instance_id", "name of this life of the engine"),
    ("--role", "role", "prefill, decode or both"),
    ("--node", "node", "node that the engine runs on"),
    ("--pod-ip", "pod_ip", "address of the engine's pod"),
    ("--stage", "stage", "stage of a pipeline of engines"),
    ("--replica", "replica", "replica of the stage"),
    ("--model", "model_name", "name of the model (default: as recorded)"),
)


def _speed(text: str) -> float:
    if text == "max":
        return 0.0
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither `max` nor a number above 0")
    return speed


def _at_least_0(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m statsbus", description=__doc__)
    parser.add_argument("--version", action="version", version=f"statsbus {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    replay = commands.add_parser(
        "replay",
        help="play a recorded stream as an engine would publish it",
        description="Plays a recorded stream; ends with 0 once the agent has applied all of it. Without --bye the "
        "agent sees silence afterwards, as when an engine is killed.",
    )
    replay.add_argument("stream", metavar="STREAM[.gz]")
    replay.add_argument("--engines", help="the agent's endpoint for statistics (default: STATSBUS_ENGINES)")
    replay.add_argument(
        "--replay", help="the agent's endpoint for replay (default: STATSBUS_REPLAY, or beside --engines)"
    )
    replay.add_argument(
        "--speed", type=_speed, default=1.0, metavar="1|N|max", help="times the recorded pace (default: 1)"
    )
    replay.add_argument(
        "--loop", action="store_true", help="again and again, clocks running on, until SIGINT or SIGTERM"
    )
    replay.add_argument("--limit", type=_at_least_0, metavar="ENTRIES", help="only the first entries, of whatever kind")
    replay.add_argument("--bye", action="store_true", help="say at the end that the engine ended in order")
    replay.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="give up without progress (default: 60)"
    )
    for flag, field, text in IDENTITY:
        replay.add_argument(flag, dest=field, help=text)
    inspect = commands.add_parser(
        "inspect",
        help="say what is in a recorded stream",
        description="Counts the entries of a recorded stream by kind.",
    )
    inspect.add_argument(
        "--fields",
        action="store_true",
        help="list the paths of all fields instead, each with an example: what feeds of the catalog may name",
    )
    inspect.add_argument("stream", metavar="STREAM[.gz]")
    return parser


def _list_fields(path: str) -> int:
    try:
        found = fields_of(entries(path))
    except StreamError as error:
        print(f"statsbus inspect: {error}", file=sys.stderr)
        return 1
    width = max(map(len, found), default=0)
    for field, example in found.items():
        print(f"{field:{width}}  {example!r}")
    return 0


def _inspect(path: str) -> int:
    kinds: "collections.Counter[str]" = collections.Counter()
    clocks: List[float] = []
    try:
        for entry in entries(path):
            kinds[entry["kind"]] += 1
            clocks.append(float(entry.get("mono", 0.0)))
    except StreamError as error:
        print(f"statsbus inspect: {error}", file=sys.stderr)
        return 1
    for kind, count in kinds.most_common():
        print(f"{count:8d} {kind}")
    print(f"{sum(kinds.values()):8d} entries in {clocks[-1] - clocks[0]:.1f} s")
    return 0


def main(argv: Optional[List[str]] = None) -> int:
    args = _parser().parse_args(argv)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    if args.command == "inspect":
        return _list_fields(args.stream) if args.fields else _inspect(args.stream)
    identity = {field: getattr(args, field) for _, field, _ in IDENTITY if getattr(args, field) is not None}
    return play(
        Options(
            stream=args.stream,
            engines=args.engines,
            replay=args.replay,
            speed=args.speed,
            loop=args.loop,
            limit=args.limit,
            bye=args.bye,
            timeout_s=args.timeout,
            identity=identity,
        )
    )


if __name__ == "__main__":
    sys.exit(main())
