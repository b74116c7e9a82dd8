"""What is in the images, and what they say about themselves."""

from __future__ import annotations

import io
import subprocess
import tarfile

import pytest

from compose import PODMAN, PODMAN_LIMITS, container
from fleet import Fleet

DAEMONS = {"statsbus-hub": "/usr/bin/statsbus-hub", "statsbus-agent": "/usr/bin/statsbus-agent"}
SIZE_MAX_MB = {"statsbus-hub": 30, "statsbus-agent": 30, "statsbus-engine-replay": 80}


@pytest.mark.parametrize("image", SIZE_MAX_MB)
def test_it_is_small(containers: Fleet, image: str, capsys: pytest.CaptureFixture[str]) -> None:
    megabytes = containers.image(image)["Size"] / 1e6
    with capsys.disabled():
        print(f"\n{image}: {megabytes:.1f} MB")
    assert megabytes < SIZE_MAX_MB[image]


@pytest.mark.parametrize("image", SIZE_MAX_MB)
def test_it_runs_as_an_ordinary_user(containers: Fleet, image: str) -> None:
    user, group = containers.image(image)["Config"]["User"].split(":")  # by number, as Kubernetes' runAsNonRoot needs it
    assert int(user) >= 1000 and int(group) >= 1000


def files(containers: Fleet, image: str) -> dict[str, tarfile.TarInfo]:
    """Of a container of it that never ran."""
    name = container("files")
    containers.result("rm", "-f", name)
    containers.call("create", "--name", name, image)
    try:
        data = subprocess.run([*containers.tool.command, "export", name], capture_output=True, timeout=120, check=True).stdout
    finally:
        containers.call("rm", "-f", "-v", name)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {"/" + member.name.lstrip("./"): member for member in archive.getmembers()}


@pytest.mark.parametrize("image", DAEMONS)
def test_it_holds_the_daemon_and_what_that_loads_alone(containers: Fleet, image: str) -> None:
    found = files(containers, image)
    # What the engine of containers itself makes at creation is none of ours.
    made = ("/dev", "/proc", "/sys", "/run/.containerenv", "/.dockerenv", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/mtab",
            "/run/secrets")
    regular = [path for path, member in found.items() if (member.isreg() or member.islnk()) and not path.startswith(made)]
    programs = [path for path in regular if found[path].mode & 0o111 and ".so" not in path]
    assert programs == [DAEMONS[image]]
    others = [path for path in regular if path not in programs and ".so" not in path and not path.endswith("/copyright") and
              not path.startswith("/var/lib/dpkg/status.d/")]
    assert sorted(others) == ["/etc/group", "/etc/passwd"]
    # Each library with its licence, and as the package that a scanner looks up.
    packages = {path.split("/")[-1] for path in regular if path.startswith("/var/lib/dpkg/status.d/")}
    assert packages == {path.split("/")[-2] for path in regular if path.endswith("/copyright")}
    assert {"libc6", "libzmq5", "libczmq4", "libmicrohttpd12", "libyaml-0-2", "zlib1g"} <= packages
    assert not [path for path, member in found.items() if member.mode & 0o6000 and path != "/tmp"]


def test_the_agents_folders_are_its_own_and_volumes(containers: Fleet) -> None:
    config = containers.image("statsbus-agent")["Config"]
    user, group = map(int, config["User"].split(":"))
    found = files(containers, "statsbus-agent")
    for folder in ("/run/statsbus", "/var/lib/statsbus"):
        assert folder in config["Volumes"]
        assert (found[folder].uid, found[folder].gid, found[folder].mode & 0o7777) == (user, group, 0o750)


@pytest.mark.parametrize("image", DAEMONS)
def test_settings_are_checked_in_the_image(containers: Fleet, image: str) -> None:
    limits = PODMAN_LIMITS if containers.tool is PODMAN else ()
    done = containers.result("run", "--rm", "--network=none", *limits, "--read-only", image, "--check-config")
    assert done.returncode == 0, done.stderr
    assert 'http: "0.0.0.0:' in done.stdout
