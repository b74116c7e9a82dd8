"""A program in a terminal of its own, and what stands on its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Callable

from daemons import wait_for
from watch import ENTER, HOME, LEAVE

_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen:
    """Programs that draw as scripts/watch.py does: each frame starts at the top."""

    def __init__(self, command: list[str], columns: int = 130, lines: int = 40, env: dict[str, str] | None = None) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        # A session of its own, whose terminal this is: Ctrl-C written into it becomes SIGINT.
        self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(theirs)
        self.text = ""

    def _read(self) -> bool:
        """Takes what is there; False at the end."""
        while select.select([self._ours], [], [], 0)[0]:
            try:
                data = os.read(self._ours, 1 << 16)
            except OSError:  # nobody has the other end open
                return False
            if not data:
                return False
            self.text += data.decode()
        return True

    def frame(self) -> list[str]:
        """The lines of the last frame that is complete."""
        self._read()
        frames = self.text.split(HOME)
        return [_CODES.sub("", line).rstrip("\r") for line in frames[-2].split("\n")] if len(frames) > 2 else []

    def wait_for_frame(self, look: Callable[[list[str]], bool], what: str, limit_s: float = 30.0) -> list[str]:
        def is_there() -> list[str]:
            frame = self.frame()
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.text[-2000:]}"
            return frame if frame and look(frame) else []

        try:
            return wait_for(is_there, what, limit_s)
        except Exception as error:
            raise AssertionError(f"{error}; the screen:\n" + "\n".join(self.frame())) from None

    def end(self, key: bytes = b"\x03", limit_s: float = 30.0) -> str:
        """Ctrl-C; what it still wrote after it left the other screen. It must have ended well and left the terminal as it was."""
        os.write(self._ours, key)
        wait_for(lambda: not self._read(), "it ends", limit_s)
        assert self.process.wait(limit_s) == 0, self.text[-2000:]
        assert self.text.count(ENTER) == self.text.count(LEAVE) == 1
        return self.text.partition(LEAVE)[2]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._ours)
