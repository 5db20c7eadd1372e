"""The memory gateway over HTTP: what an agent's turn costs, alone and beside twenty others.

A turn is a search and then an add of two messages, each of a user's own chat. Every text names its user, so that a
stray one shows.
"""

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from harness import Served
from ledger import Result
from recall import Source

USERS = 20
TURNS = 60
"""Of each user, in each round."""
ROUNDS = 3
BEFORE = 400
"""Messages that each user has before."""
IN_FLIGHT = 200
FLOOR = 0.2


@dataclass
class Took:
    add: list[float] = field(default_factory=list[float])
    search: list[float] = field(default_factory=list[float])


class Talks:
    def __init__(self, http: httpx.AsyncClient, source: Source) -> None:
        self._http = http
        self._source = source
        self._dice = random.Random(5)
        self._now = 1_780_000_000_000
        self.statuses: list[int] = []

    def messages(self, name: str, count: int) -> list[dict[str, Any]]:
        self._now += 1_000
        return [
            {
                "sender_id": name if number % 2 == 0 else "assistant",
                "role": "user" if number % 2 == 0 else "assistant",
                "timestamp": self._now + number,
                "content": f"{name} {self._source.text()}",
            }
            for number in range(count)
        ]

    async def call(self, key: str, verb: str, **body: Any) -> tuple[float, Any]:
        began = time.perf_counter()
        answer = await self._http.post(f"/memories/{verb}", json=body, headers={"Authorization": f"Bearer {key}"})
        took = (time.perf_counter() - began) * 1_000
        self.statuses.append(answer.status_code)
        return took, answer.json()

    async def add(self, name: str, key: str, count: int) -> float:
        body = {"session_id": f"chat:{name}", "messages": self.messages(name, count)}
        return (await self.call(key, "add", **body))[0]

    async def search(self, name: str, key: str) -> float:
        query = " ".join(self._source.text().split()[:6])
        body: dict[str, Any] = {"query": query, "scope": ["all_user_memory"], "top_k": 8}
        took, found = await self.call(key, "search", **body)
        assert all(result["text"].startswith(f"{name} ") for result in found["results"]), "somebody else's"
        return took

    async def turns(self, name: str, key: str, count: int, took: Took) -> None:
        for _ in range(count):
            took.search.append(await self.search(name, key))
            took.add.append(await self.add(name, key, 2))


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]


async def measure(target: Served, quick: bool) -> list[Result]:
    limits = httpx.Limits(max_connections=IN_FLIGHT, max_keepalive_connections=IN_FLIGHT)
    url = f"http://{target.host}:{target.port}"
    turns = TURNS // 3 if quick else TURNS
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as http:
        talks = Talks(http, Source())
        headers = {"Authorization": f"Bearer {target.key}"}
        keys: dict[str, str] = {}
        for number in range(USERS):
            made = await http.post("/users", json={"user_id": f"user-{number}"}, headers=headers)
            keys[f"user-{number}"] = made.json()["user_key"]
        for name, key in keys.items():
            await talks.add(name, key, BEFORE)
            await talks.search(name, key)
        alone, beside = Took(), Took()
        for _ in range(ROUNDS):
            name = "user-0"
            await talks.turns(name, keys[name], turns, alone)
            await asyncio.gather(*(talks.turns(name, key, turns, beside) for name, key in keys.items()))
        talks.statuses.clear()
        each = list(keys.items()) * (IN_FLIGHT // USERS)
        began = time.perf_counter()
        await asyncio.gather(*(talks.add(*each[n], 2) if n % 2 else talks.search(*each[n]) for n in range(len(each))))
        burst = (time.perf_counter() - began) * 1_000
    failed = sum(status >= 500 for status in talks.statuses)
    results: list[Result] = []
    for verb in ("add", "search"):
        for share, floor in ((0.5, None), (0.95, FLOOR)):
            one, many = (percentile(getattr(took, verb), share) for took in (alone, beside))
            name = f"{verb}: each of {USERS} users at once, against one alone, p{share * 100:.0f}"
            results.append(Result(name, many, one, floor, "ms", one / many))
    results.append(Result(f"{IN_FLIGHT} requests in flight: until all are answered", burst, None, None, "ms"))
    results.append(
        Result(
            f"{IN_FLIGHT} requests in flight: answers that are not 5xx",
            1 - failed / IN_FLIGHT,
            None,
            1.0,
            "",
            1 - failed / IN_FLIGHT,
        )
    )
    return results


def run(target: Served, quick: bool) -> list[Result]:
    return asyncio.run(measure(target, quick))
