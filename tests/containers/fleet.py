"""The services of compose.yaml, run by hand."""

from __future__ import annotations

import fcntl
import json
import socket
import struct
import subprocess
import time
from typing import Any

from compose import PODMAN, PROJECT, Tool, container, run_arguments, services
from daemons import http_get, sample, wait_for

STOP_S = 10  # what a container gets between SIGTERM and SIGKILL


def bring_loopback_up() -> None:
    """In a new network even this is down."""
    SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(handle, SIOCGIFFLAGS, request))[1]
        if not flags & IFF_UP:
            fcntl.ioctl(handle, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


class Fleet:
    """Those of one project."""

    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self.services = services()

    def call(self, *arguments: str, limit_s: float = 120) -> str:
        done = subprocess.run([*self.tool.command, *arguments], capture_output=True, text=True, timeout=limit_s)
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stderr}"
        return done.stdout.strip()

    def result(self, *arguments: str, limit_s: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self.tool.command, *arguments], capture_output=True, text=True, timeout=limit_s)

    def start(self, name: str) -> None:
        self.call(*run_arguments(self.tool, name, self.services[name], list(self.services)))

    def start_like(self, name: str, *command: str, **changes: Any) -> subprocess.Popen[str]:
        """A service with another command and some keys changed (None: without). It is removed at its end."""
        service = {key: value for key, value in {**self.services[name], "restart": "no", "command": list(command), **changes}.items()
                   if value is not None}
        arguments = run_arguments(self.tool, f"once-{name}", service, list(self.services))
        arguments[:2] = ["run", "--rm"]
        return subprocess.Popen([*self.tool.command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def inspect(self, name: str) -> dict[str, Any]:
        (found,) = json.loads(self.call("inspect", "--type", "container", container(name)))
        assert isinstance(found, dict)
        return found

    def image(self, name: str) -> dict[str, Any]:
        (found,) = json.loads(self.call("image", "inspect", name))
        assert isinstance(found, dict)
        return found

    def pid(self, name: str) -> int:
        return int(self.inspect(name)["State"]["Pid"])

    def log(self, name: str) -> str:
        done = self.result("logs", container(name))
        return done.stdout + done.stderr

    def port(self, name: str) -> int:
        """Of its pages, on this machine."""
        return {"hub": 9464, "agent-a": 9465, "agent-b": 9466}[name]

    def is_ready(self, name: str) -> bool:
        try:
            return http_get(self.port(name), "/readyz")[0] == 200
        except OSError:
            return False

    def wait_ready(self, name: str) -> float:
        """Seconds that it took."""
        start = time.monotonic()
        wait_for(lambda: self.is_ready(name), f"{name} is ready; its log: {self.log(name)}", 30)
        return time.monotonic() - start

    def metrics(self, query: str = "", name: str = "hub") -> str:
        status, _, body = http_get(self.port(name), "/metrics" + (f"?{query}" if query else ""))
        assert status == 200, body
        return body.decode()

    def sample(self, metric: str, query: str = "", name: str = "hub", **labels: str) -> float | None:
        return sample(self.metrics(query, name), metric, **labels)

    def is_healthy(self, name: str) -> bool:
        """Asks as the image's HEALTHCHECK says: podman would need systemd to do it by itself."""
        if self.tool is PODMAN:
            return self.result("healthcheck", "run", container(name)).returncode == 0
        test = self.inspect(name)["Config"]["Healthcheck"]["Test"]
        assert test[0] == "CMD"
        return self.result("exec", container(name), *test[1:]).returncode == 0

    def remove_all(self) -> None:
        # One by one: podman removes none when one of them isn't there.
        for name in [*self.services, *(f"once-{name}" for name in self.services)]:
            self.result("rm", "-f", "-v", container(name))
        for volume in ("sockets-a", "state-a", "state-b"):
            self.result("volume", "rm", "-f", container(volume))
        if self.tool.has_networks:
            self.result("network", "rm", PROJECT)
