"""
Load for a vLLM server, with everything that clients do: streaming, several answers, stops, hanging up, impossible prompts.

    load.py URL MIX [MODEL...]      runs with the engine's Python; prints how many requests ended how, as JSON
"""

from __future__ import annotations

import asyncio
import collections
import json
import random
import sys

import aiohttp

WORDS = ("bus engine token queue prefix cache decode prefill latency batch server gauge counter histogram").split()
HANG_UP_S = 0.15
LIMIT_S = 90

# MIX: (kinds of requests and their weights, requests a burst, bursts, pause between bursts in s)
MIXES: dict[str, tuple[dict[str, int], int, int, float]] = {
    "plain": ({"stream": 4, "whole": 3, "chat": 3, "stop": 2, "token": 2, "leave": 2, "vanish": 1, "many": 1, "long": 1,
               "one": 2, "open": 1, "huge": 1}, 30, 4, 1.5),
    "spec": ({"repeat": 8, "stream": 2, "chat": 1, "stop": 1, "leave": 1, "long": 1, "many": 1}, 12, 5, 0.8),
    "smallkv": ({"long": 6, "stream": 2, "chat": 2, "leave": 2, "token": 1, "many": 1}, 24, 4, 1.0),
    "even": ({"stream": 4, "whole": 3, "chat": 3, "stop": 2, "leave": 1, "many": 1, "one": 1, "long": 1}, 14, 5, 0.8),
    "long": ({"long": 1}, 14, 3, 0.5),
}  # fmt: skip


class Load:
    def __init__(self, url: str, models: list[str], session: aiohttp.ClientSession) -> None:
        self.url, self.models, self.session = url, models, session
        self.ended: collections.Counter[str] = collections.Counter()
        self.chooser = random.Random(7)
        self.shared = [self.text(n) for n in (60, 120, 220)]  # beginnings that the prefix cache may know

    def text(self, words: int) -> str:
        return " ".join(self.chooser.choices(WORDS, k=words))

    def body(self, kind: str) -> tuple[str, dict[str, object]]:
        """Path and body of a request."""
        choose = self.chooser.choice
        begin = choose(self.shared) if self.chooser.random() < 0.5 else ""
        body: dict[str, object] = {
            "model": choose(self.models), "prompt": f"{begin} {self.text(self.chooser.randint(3, 60))}".strip(),
            "temperature": 1.0, "seed": self.chooser.randrange(1 << 30), "ignore_eos": True,
            "max_tokens": choose([2, 5, 8, 16, 24, 48]),
            "stream": kind in ("stream", "leave", "vanish", "long", "open") or choose([True, False]),
        }  # fmt: skip
        changes: dict[str, dict[str, object]] = {
            "one": {"max_tokens": 1},
            "long": {"max_tokens": choose([128, 200])},
            "leave": {"max_tokens": 300},
            "vanish": {"max_tokens": 400},
            "many": {"n": choose([2, 3]), "stream": False},
            "stop": {"stop": ["e", "a"], "max_tokens": 64},
            "token": {"ignore_eos": False, "stop_token_ids": list(range(3, 60)), "max_tokens": 64},
            "open": {"max_tokens": None, "stop": ["th"], "stop_token_ids": list(range(3, 260))},
            "huge": {"prompt": self.text(4000), "stream": False},
            "repeat": {"prompt": " ".join([self.text(12)] * 8), "max_tokens": 64, "temperature": choose([0.0, 1.0])},
        }
        body.update(changes.get(kind, {}))
        if kind != "chat":
            return "/v1/completions", body
        body["messages"] = [{"role": "system", "content": choose(self.shared)}, {"role": "user", "content": body.pop("prompt")}]
        return "/v1/chat/completions", body

    async def one(self, kind: str) -> None:
        path, body = self.body(kind)
        limit = aiohttp.ClientTimeout(total=HANG_UP_S if kind == "vanish" else LIMIT_S)
        try:
            async with self.session.post(self.url + path, json=body, timeout=limit) as answer:
                if answer.status != 200:
                    self.ended[f"{kind}: HTTP {answer.status}"] += 1
                    return
                lines = 0
                patience = self.chooser.choice([2, 6, 20, 60])
                async for _ in answer.content:
                    lines += 1
                    if kind == "leave" and lines > patience:
                        answer.close()
                        self.ended["leave: left"] += 1
                        return
                self.ended[f"{kind}: ok"] += 1
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            self.ended[f"{kind}: {type(error).__name__}"] += 1

    async def burst(self, kinds: dict[str, int], count: int, spread_s: float = 0.03) -> None:
        chosen = self.chooser.choices(list(kinds), list(kinds.values()), k=count)
        running = []
        for kind in chosen:
            running.append(asyncio.create_task(self.one(kind)))
            await asyncio.sleep(self.chooser.random() * spread_s)
        await asyncio.gather(*running)


async def main() -> None:
    url, mix, *models = sys.argv[1:]
    kinds, count, bursts, pause_s = MIXES[mix]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as session:
        load = Load(url, models or ["tiny"], session)
        for number in range(bursts):
            if mix == "plain" and number == 1:
                await load.burst({"stream": 1}, 2 * count, 0.0)  # all at once: large batches, and rejections
            else:
                await load.burst(kinds, count if number % 3 else max(2, count // 3))
            await asyncio.sleep(pause_s)
    print(json.dumps(load.ended))


if __name__ == "__main__":
    asyncio.run(main())
