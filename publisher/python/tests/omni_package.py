"""The public package vllm-omni, read without importing any of it: its classes, calls and metric families."""

from __future__ import annotations

import ast
import os
import pathlib
import subprocess
import sys
import zipfile
from typing import Any, Dict, Iterable, List, Set, Tuple

VERSION = "0.30.0"
CACHE = pathlib.Path(__file__).parents[3] / "build" / "vllm-omni"
FAMILY_TYPES = {"Counter": "counter", "Gauge": "gauge", "Histogram": "histogram"}


class Unavailable(Exception):
    """The text says why."""


def wheel() -> pathlib.Path:
    """STATSBUS_OMNI_WHEEL, or the pinned release from PyPI, kept in build/."""
    given = os.environ.get("STATSBUS_OMNI_WHEEL")
    if given:
        return pathlib.Path(given)
    CACHE.mkdir(parents=True, exist_ok=True)
    found = sorted(CACHE.glob(f"vllm_omni-{VERSION}-*.whl"))
    if not found:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--disable-pip-version-check", "--no-input"]
        command += ["--retries", "1", "--timeout", "15", "-d", str(CACHE), f"vllm-omni=={VERSION}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        except subprocess.TimeoutExpired as error:
            raise Unavailable("pip download of vllm-omni takes over 120 s") from error
        found = sorted(CACHE.glob(f"vllm_omni-{VERSION}-*.whl"))
        if not found:
            raise Unavailable(f"pip download of vllm-omni failed: {(done.stderr.strip() or 'no wheel').splitlines()[-1]}")
    return found[0]


class Package:
    def __init__(self, path: pathlib.Path) -> None:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.startswith("vllm_omni/") and name.endswith(".py")]
            self.sources = {name: archive.read(name).decode() for name in names}
        self.definitions = evaluated(self.tree("vllm_omni/metrics/definitions.py"))

    def tree(self, name: str) -> ast.Module:
        return ast.parse(self.sources[name])

    def methods(self, module: str, class_name: str) -> Dict[str, Tuple[List[str], List[Any]]]:
        """Public methods (and the constructor) of a class: names of the arguments, and their defaults."""
        (found,) = [n for n in self.tree(module).body if isinstance(n, ast.ClassDef) and n.name == class_name]
        out = {}
        for node in found.body:
            if isinstance(node, ast.FunctionDef) and (node.name == "__init__" or not node.name.startswith("_")):
                assert not node.args.vararg and not node.args.kwonlyargs
                names = [argument.arg for argument in node.args.args[1:]]
                out[node.name] = (names, [ast.literal_eval(default) for default in node.args.defaults])
        return out

    def calls_on(self, owners: Iterable[str]) -> Dict[str, Set[str]]:
        """Names of methods called on something that has this name, or on an attribute of this name, anywhere."""
        out: Dict[str, Set[str]] = {owner: set() for owner in owners}
        for text in self.sources.values():
            if not any(f"{owner}." in text for owner in out):
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    on = node.func.value
                    owner = on.attr if isinstance(on, ast.Attribute) else getattr(on, "id", "")
                    if owner in out:
                        out[owner].add(node.func.attr)
        return out

    def families(self) -> Dict[str, Tuple[str, List[str], Any]]:
        """Name to type, labels and bounds (None: the client's own) of what the package's metric modules make."""
        out = {}
        for name in sorted(self.sources):
            if name.startswith("vllm_omni/metrics/") and "prometheus_client" in self.sources[name]:
                local = evaluated(self.tree(name), self.definitions)
                for node in ast.walk(self.tree(name)):
                    type_ = FAMILY_TYPES.get(getattr(getattr(node, "func", None), "id", ""))
                    if isinstance(node, ast.Call) and type_ and node.args:
                        arguments = {keyword.arg: evaluate(keyword.value, local) for keyword in node.keywords}
                        family = evaluate(node.args[0], local) + ("_total" if type_ == "counter" else "")
                        out[family] = (type_, list(arguments["labelnames"]), arguments.get("buckets"))
        return out


def evaluated(module: ast.Module, definitions: Any = None) -> Dict[str, Any]:
    """The module's names that are given constants, or what is made of them."""
    names: Dict[str, Any] = {"defs": definitions or {}}
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                names[node.targets[0].id] = evaluate(node.value, names)
            except (KeyError, TypeError, ValueError):
                continue
    return names


def evaluate(node: ast.AST, names: Dict[str, Any]) -> Any:
    """Constants, sums, formatted texts, names, `defs.NAME`, and list(...) of such."""
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.Attribute):
        return evaluate(node.value, names)[node.attr]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return evaluate(node.left, names) + evaluate(node.right, names)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(evaluate(part, names)) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return evaluate(node.value, names)
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "list":
        return list(evaluate(node.args[0], names))
    return ast.literal_eval(node)
