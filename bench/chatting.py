"""A conversation of LoCoMo's shape added for many users at once through the memory gateway, and searched.

    python bench/chatting.py SET URL ADMIN_KEY [USERS]

Prints how long adds and searches took, and fails where somebody finds what is somebody else's.
"""

import asyncio
import statistics
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import httpx

from whence.evaluation.datasets import Conversation, Dataset

BATCH = 500


async def main(path: str, url: str, key: str, users: int) -> None:
    conversation = next(iter(Dataset(Path(path)).conversations(None)))
    run = uuid.uuid4().hex[:6]
    limits = httpx.Limits(max_connections=200, max_keepalive_connections=200)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as http:
        names = [f"u{run}-{number}" for number in range(users)]
        headers = {"Authorization": f"Bearer {key}"}
        made = [(await http.post("/users", json={"user_id": name}, headers=headers)).json() for name in names]
        keys = {user["user_id"]: user["user_key"] for user in made}
        adds: list[float] = []
        searches: list[float] = []
        started = time.perf_counter()
        await asyncio.gather(*(_add(http, name, keys[name], conversation, adds) for name in names))
        took = time.perf_counter() - started
        await asyncio.gather(*(_search(http, name, keys[name], conversation, searches) for name in names))
    count = users * len(conversation.turns)
    print(f"{count:,} messages of {users} users in {took:.1f} s: {count / took:,.0f} a second, {len(adds)} adds")
    for what, times in (("add", adds), ("search", searches)):
        print(f"{what}: median {statistics.median(times):.0f} ms, most {max(times):.0f} ms, of {len(times)}")


async def _call(http: httpx.AsyncClient, verb: str, times: list[float], **body: Any) -> Any:
    started = time.perf_counter()
    answer = await http.post(f"/memories/{verb}", json=body)
    times.append((time.perf_counter() - started) * 1000)
    assert answer.status_code == 200, (answer.status_code, answer.text[:300])
    return answer.json()


async def _add(http: httpx.AsyncClient, name: str, key: str, conversation: Conversation, times: list[float]) -> None:
    """Each user's own: every text names its user, so that a stray one shows."""
    turns = conversation.turns
    for start in range(0, len(turns), BATCH):
        messages = [
            {
                "sender_id": turn.speaker or turn.role,
                "role": turn.role,
                "timestamp": round(turn.said_at.timestamp() * 1000),
                "content": f"{turn.text} ({name})",
            }
            for turn in turns[start : start + BATCH]
        ]
        who = {"user_id": name, "user_key": key}
        await _call(http, "add", times, **who, session_id=f"chat:{turns[start].session_id}", messages=messages)


async def _search(http: httpx.AsyncClient, name: str, key: str, conversation: Conversation, times: list[float]) -> None:
    who = {"user_id": name, "user_key": key}
    for question in conversation.questions[:20]:
        found = await _call(http, "search", times, **who, query=question.text, scope=["all_user_memory"], top_k=10)
        strays = [result["text"] for result in found["results"] if f"({name})" not in result["text"]]
        assert found["results"], question.text
        assert not strays, strays


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int((sys.argv[4:] or ["20"])[0])))
