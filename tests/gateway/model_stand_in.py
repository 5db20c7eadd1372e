"""A stand-in for the OpenAI API on the loopback interface: it asks for a tool once, then answers."""

import json
import re
import struct
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "gpt-4o-mini"
RESPONSE_MODEL = "gpt-4o-mini-2024-07-18"
UNKNOWN_MODEL = "no-such-model"
EMBEDDING_MODEL = "text-embedding-3-small"
ARGUMENTS = {"city": "Paris"}
ANSWER = "It is 18C and sunny in Paris."
CALL_ID = "call_1"
VECTOR = (0.25, -0.5, 1.0)

# Another count for each turn, so that a test can tell which one it sees.
TOOL_USAGE = {"prompt_tokens": 42, "completion_tokens": 11, "total_tokens": 53}
ANSWER_USAGE = {"prompt_tokens": 64, "completion_tokens": 9, "total_tokens": 73}
EMBEDDING_USAGE = {"prompt_tokens": 5, "total_tokens": 5}


@dataclass(frozen=True)
class ModelStandIn:
    base_url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    """The bodies of the requests so far."""


@contextmanager
def model_stand_in() -> Iterator[ModelStandIn]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.stand_in = ModelStandIn(f"http://127.0.0.1:{server.server_port}/v1")
    # The default interval of half a second would be waited for at the end of every test.
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.stand_in
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # The answer is sent in several small writes, which must not wait for each other.
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.stand_in.requests.append(request)
        if request["model"] == UNKNOWN_MODEL:
            self._send(404, {"error": {"message": "The model does not exist", "code": "model_not_found"}})
        elif self.path == "/v1/embeddings":
            self._send(200, _embeddings(request))
        elif self.path == "/v1/chat/completions" and request.get("stream"):
            self._send_stream(request)
        elif self.path == "/v1/chat/completions":
            self._send(200, _completion(request))
        else:
            self._send(404, {"error": {"message": f"no such path: {self.path}"}})

    def _send(self, status: int, body: dict[str, Any]) -> None:
        self._send_bytes(status, "application/json", json.dumps(body).encode())

    def _send_stream(self, request: dict[str, Any]) -> None:
        frames = [f"data: {json.dumps(chunk)}\n\n" for chunk in _chunks(request)]
        self._send_bytes(200, "text/event-stream", "".join([*frames, "data: [DONE]\n\n"]).encode())

    def _send_bytes(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing: the output belongs to the tests."""


def _turn(request: dict[str, Any]) -> tuple[dict[str, Any], str, dict[str, int]]:
    """The model's message, why it ended, and what it cost: a tool call unless there is no tool, or a result of one."""
    tools = request.get("tools")
    if not tools or any(message["role"] == "tool" for message in request["messages"]):
        return {"role": "assistant", "content": ANSWER}, "stop", ANSWER_USAGE
    function = {"name": tools[0]["function"]["name"], "arguments": json.dumps(ARGUMENTS)}
    call = {"id": CALL_ID, "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls", TOOL_USAGE


def _completion(request: dict[str, Any]) -> dict[str, Any]:
    message, finish_reason, usage = _turn(request)
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return _envelope("chat.completion", [choice]) | {"usage": usage}


def _chunks(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The same turn in pieces: who speaks, the content by word, the reason of the end, and the usage if asked for."""
    message, finish_reason, usage = _turn(request)
    deltas: list[dict[str, Any]] = [{"role": "assistant"}]
    deltas += [{"content": word} for word in re.findall(r"\S+\s*", message["content"] or "")]
    deltas += [{"tool_calls": [{"index": 0, **call}]} for call in message.get("tool_calls", ())]
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish_reason})
    chunks = [_envelope("chat.completion.chunk", [choice]) for choice in choices]
    if (request.get("stream_options") or {}).get("include_usage"):
        chunks.append(_envelope("chat.completion.chunk", []) | {"usage": usage})
    return chunks


def _envelope(kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1_700_000_000, "model": RESPONSE_MODEL, "choices": choices}


def _embeddings(request: dict[str, Any]) -> dict[str, Any]:
    """One vector for each text, in the form that the client asks for."""
    texts = request["input"] if isinstance(request["input"], list) else [request["input"]]
    packed = b64encode(struct.pack(f"<{len(VECTOR)}f", *VECTOR)).decode()
    vector = packed if request.get("encoding_format") == "base64" else list(VECTOR)
    data = [{"object": "embedding", "index": index, "embedding": vector} for index in range(len(texts))]
    return {"object": "list", "model": request["model"], "data": data, "usage": EMBEDDING_USAGE}
