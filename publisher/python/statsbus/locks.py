"""Locks that are free in a forked child: whoever held one in the parent is not there to let go of it."""

from __future__ import annotations

import os
import threading
import weakref


class Lock:
    """For `with`; not to be held by a thread that forks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        self._lock = threading.Lock()


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_locks):
        lock.renew()


os.register_at_fork(after_in_child=_renew_all)
