"""Shows a hub's numbers as a table that refreshes, by service, role, node and instance. Ctrl-C ends it."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import signal
import sys
import time
from types import FrameType, TracebackType
from urllib.parse import urlencode, urlsplit

from watch_view import VIEWS, Watch, families, fit

EVERY_S = 1.0
TIMEOUT_S = 5.0
ENTER = "\x1b[?1049h\x1b[?25l"  # the other screen, no cursor
LEAVE = "\x1b[?25h\x1b[?1049l"
HOME, REST_OF_LINE, REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def scrape(host: str) -> dict[str, str]:
    """One text a view. Raises OSError."""
    query = urlencode([("name[]", name) for name in families()])
    texts = {}
    try:
        with contextlib.closing(http.client.HTTPConnection(host, timeout=TIMEOUT_S)) as connection:
            for view, _, _ in VIEWS:
                connection.request("GET", f"/metrics?type={view}&{query}")
                response = connection.getresponse()
                texts[view] = response.read().decode()
                if response.status != 200:
                    raise OSError(f"answers {response.status}: {texts[view][:200].strip()}")
    except (http.client.HTTPException, UnicodeError) as error:  # the second: a name that can't be one, or an answer that is no text
        raise OSError(f"is no hub: {error!r}") from error
    return texts


class Terminal:
    """The other screen for as long as the `with` block lasts."""

    def __enter__(self) -> Terminal:
        sys.stdout.write(ENTER)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        sys.stdout.write(LEAVE)
        sys.stdout.flush()

    def show(self, above: list[str], table: list[str], below: list[str]) -> None:
        size = os.get_terminal_size(sys.stdout.fileno())
        # Without an end of line after the last one, which would scroll.
        body = "\n".join(line + REST_OF_LINE for line in fit(above, table, below, size.columns, size.lines))
        sys.stdout.write(HOME + body + REST_OF_SCREEN)
        sys.stdout.flush()


class Screen:
    """The table of one hub between lines above and below it, drawn anew with each `refresh`."""

    def __init__(self, terminal: Terminal, host: str) -> None:
        self._terminal = terminal
        self._host = host
        self._watch = Watch()

    def refresh(self, above: list[str], below: list[str]) -> None:
        try:
            self._watch.add(time.monotonic(), scrape(self._host))
        except OSError as error:
            above = [*above, f"The hub at {self._host} doesn't answer now: {error}"]
        self._terminal.show(above, self._watch.lines(), below)


def rest(seconds: float) -> None:
    """Ended by a signal that has a handler, whose exception then comes out of here."""
    signal.sigtimedwait([], seconds)


def interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def ends_by_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hub", nargs="?", default="http://127.0.0.1:9464", help="its address (default: %(default)s)")
    args = parser.parse_args()
    host = urlsplit(args.hub if "://" in args.hub else f"http://{args.hub}").netloc
    if not sys.stdout.isatty():
        parser.error("this needs a terminal; for programs there is /metrics")
    ends_by_signals()
    try:
        scrape(host)  # an address that is wrong is said before the screen changes
    except OSError as error:
        print(f"watch: {args.hub} {error}", file=sys.stderr)
        return 1
    try:
        with Terminal() as terminal:
            screen = Screen(terminal, host)
            while True:
                screen.refresh([f"statsbus, {args.hub}, Ctrl-C ends this", ""], [])
                rest(EVERY_S)
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
