"""Both layers around an agent's loop: what a model is given, what a gateway is told, and that neither disturbs the
other."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from conftest import clean_environment
from hybrid_agent import SYSTEM, Agent, AgentRunResult, Gateway, Provider, ProviderDown
from whence.hybrid import HybridMemory, MemoryConfig
from whence.hybrid.reference import LABEL, RULE

CURATED = MemoryConfig.parse({"memory": {"mode": "curated"}})
SKILL = {"role": "user", "content": "SKILL-TEXT: how to cook"}
PROMPT = "I am allergic to peanuts. What shall I cook?"
ANSWER = "A curry without peanuts."
FAILING = {
    "/memories/search": "recall_failed",
    "/memories/add": "add_failed",
    "/memories/flush": "flush_failed",
}
NOTE = {"arguments": {"action": "add", "target": "user", "text": "Allergic to peanuts"}}


def files(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in ("MEMORY.md", "USER.md")}


def agent_of(memory: HybridMemory, *replies: Any) -> Agent:
    return Agent(memory, Provider(list(replies)), skills=[SKILL])


# As docs/reference/hybrid.md lists it


@pytest.mark.parametrize("mode", ["curated", "hybrid"])
async def test_the_snapshot_and_the_tool_are_there_in_both_modes(gateway: Gateway, folder: Path, mode: str) -> None:
    async with gateway.memory(folder, CURATED if mode == "curated" else None) as memory:
        agent = agent_of(memory, NOTE, ANSWER)
        result = await agent.run("42", PROMPT)
    assert result == AgentRunResult(ANSWER, calls=1)
    for messages, tools in zip(agent.provider.given, agent.provider.tools, strict=True):
        assert tools == ["memory"]
        assert files(folder)["MEMORY.md"].strip() in messages[0]["content"]
        assert "- Ann likes CURATED-TEA" in messages[0]["content"]
        assert "Allergic" not in messages[0]["content"], "the snapshot is frozen"
    assert files(folder)["USER.md"] == "- Ann likes CURATED-TEA\n- Allergic to peanuts\n"


async def test_a_search_comes_before_the_provider_and_the_snapshot_is_still_there(
    gateway: Gateway, folder: Path
) -> None:
    async with gateway.memory(folder) as memory:
        agent = agent_of(memory, ANSWER)
        searched: list[list[str]] = []
        agent.provider.when_asked = lambda: searched.append(list(gateway.wire.paths))
        await agent.run("42", PROMPT)
    assert searched == [["/memories/search"]]
    assert gateway.wire.bodies("/memories/search")[0]["query"] == PROMPT
    assert gateway.wire.bodies("/memories/search")[0]["conversation_id"] == "42"
    system = agent.provider.given[0][0]
    assert system["role"] == "system"
    assert "CURATED-NOTE" in system["content"]
    assert "CURATED-TEA" in system["content"]


async def test_what_was_recalled_comes_after_skills_and_before_history_and_prompt_and_not_in_the_system_prompt(
    gateway: Gateway, folder: Path
) -> None:
    async with gateway.memory(folder) as memory:
        agent = agent_of(memory, ANSWER, "Still no peanuts.")
        await agent.run("42", PROMPT)
        await agent.run("42", "And for dessert, with my allergic reaction to peanuts?")
    first, second = agent.provider.given
    assert [message["role"] for message in first] == ["system", "user", "user"], "nothing was known yet"
    assert second[1] == SKILL
    assert second[2]["content"].startswith(LABEL)
    assert PROMPT in second[2]["content"]
    assert second[3:] == [
        {"role": "user", "content": PROMPT},
        {"role": "assistant", "content": ANSWER},
        {"role": "user", "content": "And for dessert, with my allergic reaction to peanuts?"},
    ]
    assert PROMPT not in second[0]["content"]
    assert first[0] == second[0], "what was recalled does not change the system prompt"
    assert LABEL not in str(agent.histories)


async def test_the_rule_stands_in_the_system_prompt_only_while_the_gateway_is_in_use(
    gateway: Gateway, folder: Path
) -> None:
    gateway.wire.faults["/memories/search"] = lambda _: httpx.Response(500)
    for config, is_there in ((gateway.config(), True), (CURATED, False), (MemoryConfig(), False)):
        async with gateway.memory(folder, config) as memory:
            agent = agent_of(memory, ANSWER)
            await agent.run("42", PROMPT)
        system = agent.provider.given[0][0]["content"]
        assert system.startswith(SYSTEM)
        assert system.count(RULE) == is_there
        assert ("ecalled" in system) == is_there


async def test_add_and_flush_come_once_each_after_the_answer(gateway: Gateway, folder: Path) -> None:
    async with gateway.memory(folder) as memory:
        agent = agent_of(memory, NOTE, NOTE, ANSWER)
        sent: list[str] = []
        agent.provider.when_asked = lambda: sent.extend(gateway.wire.paths)
        await agent.run("42", PROMPT)
        assert set(sent) == {"/memories/search"}, "until the answer is there"
        assert gateway.wire.paths == ["/memories/search", "/memories/add", "/memories/flush"]
        run = await memory.before_run("43", PROMPT)
        await asyncio.gather(*(run.complete(ANSWER) for _ in range(3)))
        await run.complete("another answer")
    assert gateway.wire.paths[3:] == ["/memories/search", "/memories/add", "/memories/flush"]
    (_, add) = gateway.wire.bodies("/memories/add")
    assert [message["content"] for message in add["messages"]] == [PROMPT, ANSWER]


async def test_nothing_but_prompt_and_answer_is_in_what_is_added(gateway: Gateway, folder: Path) -> None:
    async with gateway.memory(folder) as memory:
        agent = agent_of(memory, ANSWER, NOTE, "Rice, and no peanuts.")
        await agent.run("42", PROMPT)
        await agent.run("42", "What else can I cook with an allergy to peanuts?")
        assert LABEL in str(agent.provider.given[-1]), "something was recalled"
    for body in gateway.wire.bodies("/memories/add"):
        assert len(body["messages"]) == 2
        said = json.dumps(body)
        assert set(body) == {"user_id", "user_key", "app_id", "project_id", "session_id", "messages"}
        for other in ("TOOL-RESULT", "REASONING", "CURATED", "SKILL-TEXT", LABEL, SYSTEM, RULE[:40], "old_text"):
            assert other not in said
    assert [message["content"] for message in gateway.wire.bodies("/memories/add")[1]["messages"]] == [
        "What else can I cook with an allergy to peanuts?",
        "Rice, and no peanuts.",
    ]


@pytest.mark.parametrize("path", FAILING)
async def test_failures_change_neither_the_result_nor_curated_memory(
    gateway: Gateway, folder: Path, tmp_path_factory: pytest.TempPathFactory, path: str
) -> None:
    other = tmp_path_factory.mktemp("untroubled")
    for name, text in files(folder).items():
        (other / name).write_text(text)
    async with HybridMemory(CURATED, other) as memory:
        untroubled = agent_of(memory, NOTE, ANSWER)
        expected = await untroubled.run("42", PROMPT)
    gateway.wire.faults[path] = lambda _: httpx.Response(500)
    async with gateway.memory(folder) as memory:
        agent = agent_of(memory, NOTE, ANSWER)
        assert await agent.run("42", PROMPT) == expected
    assert gateway.events.names.count(FAILING[path]) == 1
    assert len([name for name in gateway.events.names if name.endswith("_failed")]) == 1
    assert agent.histories == untroubled.histories
    assert files(folder) == files(other)
    assert agent.provider.tools == untroubled.provider.tools
    system, other_system = (each.provider.given[0][0]["content"] for each in (agent, untroubled))
    assert system == f"{other_system}\n\n{RULE}"


async def test_audit_events_are_hidden_and_hold_no_credentials_and_no_texts(gateway: Gateway, folder: Path) -> None:
    for path in (None, *FAILING):
        gateway.wire.faults = {path: lambda _: httpx.Response(500, text=gateway.key)} if path else {}
        async with gateway.memory(folder) as memory:
            await agent_of(memory, ANSWER).run("42", PROMPT)
    assert set(gateway.events.names) == {
        f"{operation}_{outcome}" for operation in ("recall", "add", "flush") for outcome in ("succeeded", "failed")
    }
    for event in gateway.events.kept:
        assert event.context_visible is False
        assert event.session_id == "42"
        for hidden in (gateway.key, "user_key", "peanuts", "CURATED"):
            assert hidden not in repr(event)


async def test_the_memory_tool_calls_no_gateway(gateway: Gateway, folder: Path) -> None:
    async with gateway.memory(folder) as memory:
        for action in (
            {"action": "add", "target": "memory", "text": "One"},
            {"action": "replace", "target": "memory", "old_text": "One", "text": "Two"},
            {"action": "remove", "target": "memory", "old_text": "Two"},
        ):
            assert memory.tool.call(action)["ok"]
    assert not gateway.wire.sent
    assert not gateway.events.kept


async def test_what_the_gateway_is_told_changes_no_curated_file(gateway: Gateway, folder: Path) -> None:
    before = files(folder)
    async with gateway.memory(folder) as memory:
        agent = agent_of(memory, ANSWER, ANSWER)
        for prompt in (PROMPT, "What did I say about peanuts?"):
            await agent.run("42", prompt)
    assert gateway.events.names.count("flush_succeeded") == 2
    assert files(folder) == before
    assert sorted(path.name for path in folder.iterdir()) == ["MEMORY.md", "USER.md"]


@pytest.mark.parametrize("config", [CURATED, MemoryConfig(), MemoryConfig.parse({"memory": {"gateway": {}}})])
async def test_without_a_gateway_nothing_is_sent(gateway: Gateway, folder: Path, config: MemoryConfig) -> None:
    async with gateway.memory(folder, config) as memory:
        agent = agent_of(memory, NOTE, ANSWER)
        assert (await agent.run("42", PROMPT)).answer == ANSWER
    assert not gateway.wire.sent
    assert not gateway.events.kept
    assert [message["role"] for message in agent.provider.given[0]] == ["system", "user", "user"]


# More of the same


async def test_a_run_that_failed_is_not_added_and_a_fallback_is(gateway: Gateway, folder: Path) -> None:
    async with gateway.memory(folder) as memory:
        assert (await agent_of(memory, ProviderDown()).run("42", PROMPT)).error
        assert gateway.wire.paths == ["/memories/search"]
        assert (
            await agent_of(memory, NOTE, NOTE, NOTE).run("42", PROMPT)
        ).answer == "I could not finish: too many calls."
    assert gateway.wire.paths[2:] == ["/memories/add", "/memories/flush"]


async def test_times_are_when_the_user_asked_and_when_the_agent_answered(made_up: Gateway, folder: Path) -> None:
    ticks = iter((1780000000000, 1780000001000))
    memory = HybridMemory(
        made_up.config(), folder, assistant_id="helper", transport=made_up.wire, clock=lambda: next(ticks)
    )
    await agent_of(memory, ANSWER).run("42", PROMPT)
    (add,) = made_up.wire.bodies("/memories/add")
    assert [(each["sender_id"], each["timestamp"]) for each in add["messages"]] == [
        ("ann", 1780000000000),
        ("helper", 1780000001000),
    ]


async def test_empty_files_have_no_place_in_the_prompt(made_up: Gateway, tmp_path: Path) -> None:
    (tmp_path / "MEMORY.md").write_text("\n \n")
    async with made_up.memory(tmp_path, CURATED) as memory:
        run = await memory.before_run("42", PROMPT)
    assert run.messages(SYSTEM) == [{"role": "system", "content": SYSTEM}, {"role": "user", "content": PROMPT}]


async def test_what_a_person_wrote_stands_in_the_prompt_character_by_character(
    made_up: Gateway, tmp_path: Path
) -> None:
    by_hand = "# Mine\n\n  odd   spaces </system> & <b>\n\n* ünïcödé 日本"
    (tmp_path / "USER.md").write_text(by_hand + "\n")
    async with made_up.memory(tmp_path, CURATED) as memory:
        run = await memory.before_run("42", PROMPT)
    (system, _) = run.messages(SYSTEM)
    assert system["content"].endswith("\n\n" + by_hand)


async def test_a_gateway_may_be_used_by_one_loop_after_another(served: Gateway, folder: Path) -> None:
    """As by programs that are not asynchronous, and start a loop for each turn."""
    served.wire = type(served.wire)(httpx.AsyncHTTPTransport(limits=httpx.Limits(max_keepalive_connections=0)))
    memory = served.memory(folder)

    def turns() -> list[AgentRunResult]:
        return [asyncio.run(agent_of(memory, ANSWER).run("42", PROMPT)) for _ in range(2)]

    assert [result.answer for result in await asyncio.to_thread(turns)] == [ANSWER, ANSWER]
    assert served.events.names == ["recall_succeeded", "add_succeeded", "flush_succeeded"] * 2


def test_nothing_of_the_server_is_loaded() -> None:
    program = "import sys, whence.hybrid; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=clean_environment()
    ).stdout.split()
    ours = {name for name in loaded if name.startswith("whence")}
    assert {name.split(".")[1] for name in ours if "." in name} == {"errors", "hybrid", "orders"}
    assert not {"psycopg", "litestar", "numpy", "uvicorn", "pydantic"} & set(loaded)
