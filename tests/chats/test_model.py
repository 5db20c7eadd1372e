"""Facts by a language model, against a server on loopback that speaks its API."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from pydantic import SecretStr

from conftest import serving
from tiny_models import Hosted, hosted
from whence.chats.extraction import ByModel, Heard
from whence.errors import SetupError, Unavailable
from whence.models import make_language_model
from whence.models.host import MAX_CALLS
from whence.models.language import LanguageModel
from whence.settings import Settings

KEY = "sk-not-to-be-told"
LYON = {"message": 0, "quote": "Lyon is home", "predicate": "lives in", "object": "Lyon", "statement": "lives in Lyon"}


@pytest.fixture
def server() -> Iterator[Hosted]:
    with hosted() as state:
        yield state


@pytest.fixture
async def model(server: Hosted) -> Any:
    made = LanguageModel("tiny", server.url, SecretStr(KEY), sleep=lambda _: None)
    yield made
    made.close()


def said(*facts: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": json.dumps({"facts": facts})}}]}


def answering(*answers: Any) -> Callable[[dict[str, Any], int], tuple[int, dict[str, str], Any]]:
    return lambda _, number: (200, {}, answers[min(number, len(answers)) - 1])


def heard(text: str) -> Heard:
    return Heard(uuid4(), 1, text, "ann", datetime.now(UTC))


async def test_a_fact_is_taken_with_the_place_of_its_quotation(server: Hosted, model: LanguageModel) -> None:
    server.answer = answering(said(LYON))
    message = heard("Ça va? Lyon is home by now.")
    found = await ByModel(model).extract([message])
    [drawn] = found.drawn
    assert (drawn.quote, drawn.byte_range, found.dropped) == ("Lyon is home", (8, 20), [])
    [asked] = server.asked
    assert asked["path"] == "/v1/chat/completions"
    assert asked["model"] == "tiny"
    assert asked["response_format"]["json_schema"]["strict"] is True
    assert json.loads(asked["messages"][1]["content"]) == [message.text]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


async def test_what_is_not_in_the_message_or_not_of_the_schema_is_dropped_and_told(
    server: Hosted, model: LanguageModel
) -> None:
    server.answer = answering(
        said(LYON, LYON | {"quote": "Paris is home"}, LYON | {"message": 7}, LYON | {"object": " "})
    )
    found = await ByModel(model).extract([heard("Lyon is home")])
    assert len(found.drawn) == 1
    assert len(found.dropped) == 3
    assert not any("Paris" in why for why in found.dropped)
    server.asked.clear()
    server.answer = answering({"choices": [{"message": {"content": "Sorry, I cannot"}}]}, said(LYON))
    assert len((await ByModel(model).extract([heard("Lyon is home")])).drawn) == 1
    server.asked.clear()
    server.answer = answering(said(LYON | {"surprise": 1}))
    found = await ByModel(model).extract([heard("Lyon is home")])
    assert (found.drawn, len(found.dropped), len(server.asked)) == ([], 1, 2)


async def test_many_messages_are_shown_in_parts(server: Hosted, model: LanguageModel) -> None:
    server.answer = answering(said())
    await ByModel(model).extract([heard("x" * 1_000) for _ in range(60)])
    shown = [json.loads(asked["messages"][1]["content"]) for asked in server.asked]
    assert [len(part) for part in shown] == [24, 24, 12]


async def test_a_model_that_does_not_answer_is_unavailable(server: Hosted, model: LanguageModel) -> None:
    server.answer = lambda body, number: (500, {}, b"the key is " + KEY.encode())
    with pytest.raises(Unavailable) as failed:
        await model.answer("", "", {})
    assert KEY not in str(failed.value)
    assert (len(server.asked), model.is_failing) == (MAX_CALLS, True)
    for status, what in ((401, "language_model_key"), (404, "language_model")):
        server.answer = lambda body, number, status=status: (status, {}, b"")
        with pytest.raises(Unavailable, match=what):
            await model.answer("", "", {})
    server.answer = answering({"hello": 1})
    with pytest.raises(Unavailable, match="chat API"):
        await model.answer("", "", {})
    meanwhile: list[bool] = []

    def answer(body: dict[str, Any], number: int) -> tuple[int, dict[str, str], Any]:
        meanwhile.append(model.is_failing)
        return 200, {}, said()

    server.answer = answer
    for _ in range(2):
        await model.answer("", "", {})
        assert not model.is_failing
    # One that is under way changes nothing.
    assert meanwhile == [True, False]


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"language_model": "gpt"}, "language_model: is openai:MODEL"),
        ({"language_model": "openai:m", "language_model_url": "ftp://x"}, "begins with http"),
        ({"language_model": "openai:m", "language_model_url": "http://a:b@x"}, "has a password"),
        ({"language_model": "openai:m", "language_model_key": "a\nb"}, "signs that no key has"),
    ],
)
def test_settings_that_cannot_be_are_told(settings: dict[str, Any], what: str, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=what):
        make_language_model(Settings(data_dir=tmp_path, **settings))
    assert make_language_model(Settings(data_dir=tmp_path)) is None


def test_a_server_with_a_model_extracts_by_it_and_embeds_behind_an_add(server: Hosted, tmp_path: Path) -> None:
    """One stand-in for both models: an add asks neither, and what is not embedded yet is found by words."""
    server.answer = lambda body, number: (
        (200, {}, said(LYON)) if "messages" in body else (200, {}, server.vectors(body))
    )
    settings = {
        "WHENCE_LANGUAGE_MODEL": "openai:tiny",
        "WHENCE_LANGUAGE_MODEL_URL": server.url,
        "WHENCE_LANGUAGE_MODEL_KEY": KEY,
        "WHENCE_EMBEDDER": "openai:tiny",
        "WHENCE_EMBEDDER_URL": server.url,
    }
    with serving(tmp_path / "data", tmp_path / "log", "--no-worker", **settings) as served:
        with served.client(served.admin_key) as admin:
            key = admin.post("/users", json={"user_id": "ann"}).json()["user_key"]
        with served.client(key) as ann:
            messages = [{"sender_id": "ann", "role": "user", "timestamp": 1, "content": "Lyon is home"}]
            body = {"session_id": "chat:1", "messages": messages}
            assert ann.post("/memories/add", json=body).json()["status"] == "stored"
            assert server.asked == []
            found = search(ann, "Lyon")
            assert [result["text"] for result in found["results"]] == ["Lyon is home"]
            assert found["meta"]["vectors_to_come"] == 1
            flushed = ann.post("/memories/flush", json={"session_id": "chat:1"}).json()
            assert [fact["quote"] for fact in flushed["facts"]] == ["Lyon is home"]
            assert flushed["extractor"].startswith("openai:tiny@")
            server.answer = lambda body, number: (401, {}, b"")
            ann.post("/memories/add", json=body | {"messages": [messages[0] | {"timestamp": 2}]}).raise_for_status()
            assert ann.post("/memories/flush", json={"session_id": "chat:1"}).status_code == 503
            health = ann.get("/health").json()
            assert (health["status"], "language_model" in health["failing"]) == ("degraded", True)
            assert ann.get("/health/ready").status_code == 200
            server.answer = lambda body, number: (
                (200, {}, said(LYON)) if "messages" in body else (200, {}, server.vectors(body))
            )
            again = ann.post("/memories/flush", json={"session_id": "chat:1"}).json()
            assert (again["status"], again["message_count"]) == ("extracted", 1)
            assert ann.get("/health").json()["status"] == "ok"
        assert KEY not in served.log.read_text()


def search(client: httpx.Client, query: str) -> Any:
    return client.post("/memories/search", json={"query": query, "scope": ["all_user_memory"]}).json()
