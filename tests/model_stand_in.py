"""A language model that says what it was told to say, behind the chat API of OpenAI, on a port of its own."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Said = str | dict[str, Any] | int
"""A text, the arguments of a call of the tool that `name` in them says, or the status of a failure."""
Messages = list[dict[str, Any]]


@dataclass
class StandIn:
    """`reply` gets the messages of a request. What was asked is kept, with the header that has the key."""

    reply: Callable[[Messages], Said]
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    @property
    def given(self) -> list[Messages]:
        return [each["messages"] for each in self.asked]


def in_turn(*replies: Said) -> Callable[[Messages], Said]:
    left = list(replies)
    return lambda _: left.pop(0)


@contextmanager
def standing_in(reply: Callable[[Messages], Said]) -> Iterator[StandIn]:
    model = StandIn(reply)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            model.asked.append(asked)
            model.keys.append(self.headers.get("Authorization", ""))
            said = model.reply(asked["messages"])
            if isinstance(said, int):
                self._answer(said, "application/json", json.dumps({"error": {"message": model.keys[-1]}}).encode())
            elif asked.get("stream"):
                lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks(said)]
                self._answer(200, "text/event-stream", "".join([*lines, "data: [DONE]\n\n"]).encode())
            else:
                self._answer(200, "application/json", json.dumps(whole(said)).encode())

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        model.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()
            thread.join()


def message(said: str | dict[str, Any]) -> dict[str, Any]:
    if isinstance(said, str):
        return {"role": "assistant", "content": said}
    arguments = {name: value for name, value in said.items() if name != "name"}
    function = {"name": said["name"], "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }


def whole(said: str | dict[str, Any]) -> dict[str, Any]:
    ended = "stop" if isinstance(said, str) else "tool_calls"
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    choice = {"index": 0, "message": message(said), "finish_reason": ended}
    return {"id": "m", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def chunks(said: str | dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Word by word, as a model that is streamed speaks."""
    made = {"id": "m", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    if isinstance(said, str):
        deltas = [{"role": "assistant", "content": word} for word in said.replace(" ", " \0").split("\0")]
    else:
        (call,) = message(said)["tool_calls"]
        deltas = [{"role": "assistant", "tool_calls": [{"index": 0} | call]}]
    for delta in deltas:
        yield made | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    ended = "stop" if isinstance(said, str) else "tool_calls"
    yield made | {"choices": [{"index": 0, "delta": {}, "finish_reason": ended}]}
