"""Starts and stops a real `vllm serve` with the statsbus package installed beside it, and reads its /metrics."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from daemons import REPOSITORY, DaemonError, free_port, http_get, sample, wait_for

START_S = 300.0
IDLE_S = 60.0
STOP_S = 40.0
COMMON = ["--served-model-name", "tiny", "--host", "127.0.0.1", "--enforce-eager", "--max-model-len", "1024", "--dtype", "bfloat16",
          "--generation-config", "vllm", "--block-size", "32"]
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "VLLM_SERVER_DEV_MODE": "1",
    "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "TOKENIZERS_PARALLELISM": "false",
    "VLLM_LOG_STATS_INTERVAL": "5",
}


class Lab:
    """The folder that tests/engine/install made, and the package as it is now, installed where engines find it."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder, self.python = folder, folder / "v" / "bin" / "python"
        self.package = scratch / "package"
        self._install(REPOSITORY / "publisher" / "python", scratch / "source")

    def _install(self, source: Path, copy: Path) -> None:
        """From a copy, since building leaves files beside the source."""
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("*.egg-info", "build", "__pycache__"))
        subprocess.run([self.python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-build-isolation",
                        "--target", self.package, copy], check=True)

    def add_capture(self, scratch: Path) -> Path:
        """A folder for PYTHONPATH that has the capture logger as one more plugin."""
        folder = scratch / "capture"
        info = folder / "statsbus_capture-0.dist-info"
        info.mkdir(parents=True)
        shutil.copy(Path(__file__).parent / "capture.py", folder / "statsbus_capture.py")
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: statsbus-capture\nVersion: 0\n")
        (info / "entry_points.txt").write_text("[vllm.stat_logger_plugins]\ncapture = statsbus_capture:CaptureLogger\n")
        return folder


class Engine:
    """One life of a server."""

    def __init__(self, lab: Lab, scratch: Path, flags: list[str], environment: dict[str, str], path: list[Path] | None = None) -> None:
        self.lab, self.port = lab, free_port()
        self.log_path = scratch / f"engine-{self.port}.log"
        models = lab.folder / "models"
        command = [lab.folder / "v" / "bin" / "vllm", "serve", models / "tiny", "--port", str(self.port), *COMMON,
                   *(flag.replace("MODELS", str(models)) for flag in flags)]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("STATSBUS_", "PROMETHEUS_"))}
        search = os.pathsep.join(map(str, [lab.package, lab.folder / "names", *(path or [])]))
        with open(self.log_path, "wb") as log:
            self._process = subprocess.Popen(
                command, env={**kept, **ENVIRONMENT, "PYTHONPATH": search, **environment}, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, cwd=scratch, start_new_session=True, preexec_fn=_die_with_us)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_ready(self) -> Engine:
        def is_ready() -> bool:
            if self._process.poll() is not None:
                raise DaemonError(f"the engine ended with {self._process.returncode}; its log ends:\n{self.log()[-4000:]}")
            try:
                return http_get(self.port, "/health")[0] == 200
            except OSError:
                return False

        wait_for(is_ready, "the engine is ready", START_S, 0.25)
        return self

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def metrics(self) -> str:
        status, _, body = http_get(self.port, "/metrics")
        if status != 200:
            raise DaemonError(f"the engine's /metrics answers {status}")
        return body.decode()

    def post(self, path: str) -> None:
        subprocess.run([self.lab.python, "-c", "import sys, urllib.request as r; r.urlopen(r.Request(sys.argv[1], method='POST'), timeout=60)",
                        self.url + path], check=True)

    def start_load(self, mix: str, *models: str) -> subprocess.Popen[str]:
        return subprocess.Popen([self.lab.python, Path(__file__).parent / "load.py", self.url, mix, *models], stdout=subprocess.PIPE,
                                text=True, preexec_fn=_die_with_us)

    def load(self, mix: str, *models: str) -> str:
        """Runs a load to its end; how requests ended."""
        return finish(self.start_load(mix, *models))

    def wait_idle(self) -> str:
        """/metrics once nothing runs, nothing waits and no counter moves any more."""
        looks: list[tuple[float | None, ...]] = [()]
        text = ""

        def is_idle() -> bool:
            nonlocal text
            text = self.metrics()
            names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:generation_tokens_total", "vllm:iteration_tokens_total_count")
            looks.append(tuple(sample(text, name) for name in names))
            return looks[-1] == looks[-2] and not looks[-1][0] and not looks[-1][1]

        wait_for(is_idle, "the engine is idle", IDLE_S, 1.1)
        return text

    def kill(self) -> None:
        """SIGKILL, and to whatever is left of what it started."""
        self._process.kill()
        self._process.wait()
        self._clear()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                print("test-engine: the engine did not stop by itself", file=sys.stderr)
        self._clear()

    def _clear(self) -> None:
        """Ends what is left of the session that was started for this engine."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()


def finish(load: subprocess.Popen[str]) -> str:
    out, _ = load.communicate(timeout=300)
    if load.returncode != 0:
        raise DaemonError(f"the load ended with {load.returncode}")
    return out.strip()


def _die_with_us() -> None:
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
