"""Each adapter with its real framework, a model that stands in, and a gateway that is made up."""

import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import agents
import httpx
import pytest
from agents import GuardrailFunctionOutput, RunConfig, SQLiteSession
from agents.run_config import CallModelData, ModelInputData
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import whence.adapters.langgraph
import whence.adapters.openai_agents
import whence.adapters.pydantic_ai
from hybrid_agent import KEY, SYSTEM, Gateway, MadeUp, Wire
from model_stand_in import StandIn, in_turn, standing_in
from whence.adapters.openai_agents import Remembering
from whence.errors import InvalidInput
from whence.hybrid import HybridMemory
from whence.hybrid.reference import LABEL, RULE

RECALLED = "source_scope"
"""A field that stands in recalled text, and nowhere else."""
Ask = Callable[[str], Awaitable[str]]
Kind = Callable[[HybridMemory, str], Ask]


def with_pydantic_ai(memory: HybridMemory, url: str) -> Ask:
    model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=url, api_key="k"))
    agent = Agent(model, instructions=SYSTEM, capabilities=[whence.adapters.pydantic_ai.Remembering(memory)])
    history: list[Any] = []

    async def ask(prompt: str) -> str:
        result = await agent.run(prompt, conversation_id="kitchen", message_history=history)
        history[:] = result.all_messages()
        assert RECALLED not in str(history)
        return result.output

    return ask


def langgraph_agent(memory: HybridMemory, url: str) -> Any:
    return create_agent(
        ChatOpenAI(model="m", base_url=url, api_key="k", max_retries=0),
        system_prompt=SYSTEM,
        middleware=[whence.adapters.langgraph.Remembering(memory)],
        checkpointer=InMemorySaver(),
    )


def with_langgraph(memory: HybridMemory, url: str) -> Ask:
    agent = langgraph_agent(memory, url)

    async def ask(prompt: str) -> str:
        config: Any = {"configurable": {"thread_id": "kitchen"}}
        result = await agent.ainvoke({"messages": [{"role": "user", "content": prompt}]}, config)
        assert "whence_run" not in result
        assert RECALLED not in str((await agent.aget_state(config)).values)
        return result["messages"][-1].text

    return ask


def with_langgraph_that_is_not_asynchronous(memory: HybridMemory, url: str) -> Ask:
    agent = langgraph_agent(memory, url)

    async def ask(prompt: str) -> str:
        config: Any = {"configurable": {"thread_id": "kitchen"}}
        # Not in another thread, so that it is called where a loop runs, as in a notebook.
        result = agent.invoke({"messages": [{"role": "user", "content": prompt}]}, config)
        assert RECALLED not in str(agent.get_state(config).values)
        return result["messages"][-1].text

    return ask


def agent_of_the_sdk(url: str, **more: Any) -> agents.Agent[Any]:
    client = AsyncOpenAI(base_url=url, api_key="k", max_retries=0)
    return agents.Agent("a", instructions=SYSTEM, model=agents.OpenAIChatCompletionsModel("m", client), **more)


def options_of(remembering: Remembering, own: RunConfig | None = None) -> dict[str, Any]:
    return {
        "session": remembering.session,
        "hooks": remembering.hooks,
        "run_config": remembering.run_config(own),
    }


def with_openai_agents(memory: HybridMemory, url: str) -> Ask:
    remembering = Remembering(memory, "kitchen")
    agent = remembering.agent(agent_of_the_sdk(url))

    async def ask(prompt: str) -> str:
        result = await agents.Runner.run(agent, prompt, **options_of(remembering))
        assert RECALLED not in str(await remembering.session.get_items())
        return result.final_output

    return ask


def with_openai_agents_streamed(memory: HybridMemory, url: str) -> Ask:
    history = SQLiteSession("of the host")
    remembering = Remembering(memory, "kitchen", history)
    agent = remembering.agent(agent_of_the_sdk(url))

    async def ask(prompt: str) -> str:
        result = agents.Runner.run_streamed(agent, prompt, **options_of(remembering))
        async for _ in result.stream_events():
            pass
        kept = str(await history.get_items())
        assert prompt in kept
        assert RECALLED not in kept
        return result.final_output

    return ask


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The SDK of OpenAI would tell its makers of every run."""
    agents.set_tracing_disabled(True)
    yield
    agents.set_tracing_disabled(False)


@pytest.fixture
def made_up() -> Gateway:
    return Gateway("http://gateway.test:8010", KEY, Wire(MadeUp()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "MEMORY.md").write_text("- The build needs CURATED-NOTE\n")
    return tmp_path


every = pytest.mark.parametrize(
    "kind",
    [
        with_pydantic_ai,
        with_langgraph,
        with_langgraph_that_is_not_asynchronous,
        with_openai_agents,
        with_openai_agents_streamed,
    ],
)
in_both_ways = pytest.mark.parametrize("is_streamed", [False, True])


def system_of(messages: list[dict[str, Any]]) -> str:
    return "\n".join(str(each["content"]) for each in messages if each["role"] in ("system", "developer"))


@every
async def test_a_model_is_given_notes_recalled_text_history_and_prompt_in_their_order(
    kind: Kind, made_up: Gateway, folder: Path
) -> None:
    with standing_in(in_turn("Noted.", "Peanuts.")) as model:
        async with made_up.memory(folder) as memory:
            ask = kind(memory, model.url)
            assert await ask("I am allergic to peanuts.") == "Noted."
            assert await ask("What am I allergic to?") == "Peanuts."
    first, second = model.given
    assert RECALLED not in str(first)
    for messages in (first, second):
        system = system_of(messages)
        assert system.index(SYSTEM) < system.index("CURATED-NOTE") < system.index(RULE)
    recalled, *history = [each for each in second if each["role"] not in ("system", "developer")]
    assert recalled["role"] == "user"
    assert str(recalled["content"]).startswith(LABEL)
    assert [str(each["content"]) for each in history if RECALLED not in str(each)][-1] == "What am I allergic to?"
    assert sum(RECALLED in str(each) for each in second if each["role"] == "user") == 1
    assert KEY not in str(model.asked)


@every
async def test_the_gateway_is_told_of_each_run_once(kind: Kind, made_up: Gateway, folder: Path) -> None:
    with standing_in(in_turn("Noted.", "Peanuts.")) as model:
        async with made_up.memory(folder) as memory:
            ask = kind(memory, model.url)
            await ask("I am allergic to peanuts.")
            await ask("What am I allergic to?")
    search, add, flush = (f"/memories/{operation}" for operation in ("search", "add", "flush"))
    assert made_up.wire.paths == [search, add, flush] * 2
    assert {body["session_id"] for body in made_up.wire.bodies(add)} == {"chat:kitchen"}
    assert [[said["content"] for said in body["messages"]] for body in made_up.wire.bodies(add)] == [
        ["I am allergic to peanuts.", "Noted."],
        ["What am I allergic to?", "Peanuts."],
    ]


@every
async def test_the_model_keeps_notes_by_the_tool(kind: Kind, made_up: Gateway, folder: Path) -> None:
    note = {"name": "memory", "action": "add", "target": "user", "text": "Likes tea"}
    with standing_in(in_turn(note, "I noted it.")) as model:
        async with made_up.memory(folder) as memory:
            assert await kind(memory, model.url)("I like tea.") == "I noted it."
    assert (folder / "USER.md").read_text() == "- Likes tea\n"
    (offered,) = model.asked[0]["tools"]
    assert offered["function"]["name"] == "memory"
    assert set(offered["function"]["parameters"]["properties"]) == {"action", "target", "text", "old_text"}
    (result,) = [each for each in model.given[1] if each["role"] == "tool"]
    assert json.loads(result["content"])["ok"] is True
    # Of the run, prompt and answer alone are told; and the prompt of this run is as it was at its beginning.
    (told,) = made_up.wire.bodies("/memories/add")
    assert [said["content"] for said in told["messages"]] == ["I like tea.", "I noted it."]
    assert "Likes tea" not in system_of(model.given[1])


@every
async def test_a_gateway_that_is_down_changes_no_answer(kind: Kind, made_up: Gateway, folder: Path) -> None:
    def down(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("down", request=request)

    made_up.wire.faults = dict.fromkeys(("/memories/search", "/memories/add", "/memories/flush"), down)
    with standing_in(in_turn("Hello.")) as model:
        async with made_up.memory(folder) as memory:
            assert await kind(memory, model.url)("Hi.") == "Hello."
    assert made_up.events.names == ["recall_failed", "add_failed"]
    assert "CURATED-NOTE" in system_of(model.given[0])


@every
async def test_a_run_that_fails_is_not_remembered(kind: Kind, made_up: Gateway, folder: Path) -> None:
    with standing_in(lambda _: 400) as model:
        async with made_up.memory(folder) as memory:
            with pytest.raises(Exception, match="400"):
                await kind(memory, model.url)("Hi.")
    assert made_up.wire.paths == ["/memories/search"]


async def test_a_graph_without_a_thread_needs_the_name_of_a_session(made_up: Gateway, folder: Path) -> None:
    with standing_in(in_turn("Hello.")) as model:
        chat = ChatOpenAI(model="m", base_url=model.url, api_key="k", max_retries=0)  # pyright: ignore[reportArgumentType]
        asked: Any = {"messages": [{"role": "user", "content": "Hi."}]}
        async with made_up.memory(folder) as memory:
            remembering = whence.adapters.langgraph.Remembering
            with pytest.raises(InvalidInput, match="thread_id"):
                await create_agent(chat, middleware=[remembering(memory)]).ainvoke(asked)
            await create_agent(chat, middleware=[remembering(memory, "kitchen")]).ainvoke(asked)
    assert made_up.wire.bodies("/memories/add")[0]["session_id"] == "chat:kitchen"


async def run(agent: agents.Agent[Any], prompt: Any, is_streamed: bool, **options: Any) -> Any:
    if not is_streamed:
        return (await agents.Runner.run(agent, prompt, **options)).final_output
    result = agents.Runner.run_streamed(agent, prompt, **options)
    async for _ in result.stream_events():
        pass
    return result.final_output


async def test_the_filter_of_a_host_has_its_say_first(made_up: Gateway, folder: Path) -> None:
    def shouted(data: CallModelData[Any]) -> ModelInputData:
        return ModelInputData(data.model_data.input, "OWN-FILTER")

    with standing_in(in_turn("Hello.")) as model:
        agent = agent_of_the_sdk(model.url)
        async with made_up.memory(folder) as memory:
            remembering = Remembering(memory, "s")
            own = RunConfig(call_model_input_filter=shouted)
            await run(remembering.agent(agent), "Hi.", is_streamed=False, **options_of(remembering, own))
    assert system_of(model.given[0]).startswith("OWN-FILTER")
    assert agent.tools == []


@in_both_ways
async def test_what_a_guardrail_refuses_is_not_remembered(made_up: Gateway, folder: Path, is_streamed: bool) -> None:
    @agents.output_guardrail
    def no_secrets(_: Any, __: Any, output: str) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(None, tripwire_triggered="secret" in output)

    with standing_in(in_turn("A secret.", "Nothing.")) as model:
        agent = agent_of_the_sdk(model.url, output_guardrails=[no_secrets])
        async with made_up.memory(folder) as memory:
            remembering = Remembering(memory, "kitchen")
            with pytest.raises(agents.OutputGuardrailTripwireTriggered):
                await run(remembering.agent(agent), "Tell me.", is_streamed, **options_of(remembering))
            assert made_up.wire.paths == ["/memories/search"]
            await run(remembering.agent(agent), "What else?", is_streamed, **options_of(remembering))
    (told,) = made_up.wire.bodies("/memories/add")
    assert [said["content"] for said in told["messages"]] == ["What else?", "Nothing."]


@in_both_ways
async def test_a_run_that_is_handed_over_is_one_run(made_up: Gateway, folder: Path, is_streamed: bool) -> None:
    with standing_in(in_turn({"name": "transfer_to_cook"}, "Rice.")) as model:
        async with made_up.memory(folder) as memory:
            remembering = Remembering(memory, "kitchen")
            tool = whence.adapters.openai_agents.memory_tool(memory.tool)
            cook = agent_of_the_sdk(model.url, tools=[tool]).clone(name="cook")
            agent = remembering.agent(agent_of_the_sdk(model.url, handoffs=[cook]))
            asked = [{"role": "user", "content": [{"type": "input_text", "text": "What shall I cook?"}]}]
            said = await run(agent, asked, is_streamed, **options_of(remembering))
    assert said == "Rice."
    assert "CURATED-NOTE" in system_of(model.given[1])
    assert made_up.wire.paths == ["/memories/search", "/memories/add", "/memories/flush"]
    (told,) = made_up.wire.bodies("/memories/add")
    assert [said["content"] for said in told["messages"]] == ["What shall I cook?", "Rice."]


@in_both_ways
async def test_a_tool_may_end_a_run_and_its_answer_need_be_no_text(
    made_up: Gateway, folder: Path, is_streamed: bool
) -> None:
    @agents.function_tool
    def weigh() -> str:
        return "two kilos"

    with standing_in(in_turn({"name": "weigh"}, '{"response":[1,2]}')) as model:
        ending = agent_of_the_sdk(model.url, tools=[weigh], tool_use_behavior="stop_on_first_tool")
        listing = agent_of_the_sdk(model.url, output_type=list[int])
        async with made_up.memory(folder) as memory:
            for agent in (ending, listing):
                remembering = Remembering(memory, "kitchen")
                await run(remembering.agent(agent), "How much?", is_streamed, **options_of(remembering))
    assert [body["messages"][1]["content"] for body in made_up.wire.bodies("/memories/add")] == ["two kilos", "[1,2]"]


async def test_a_run_without_the_hooks_is_refused(made_up: Gateway, folder: Path) -> None:
    with standing_in(in_turn("Hello.")) as model:
        async with made_up.memory(folder) as memory:
            remembering = Remembering(memory, "kitchen")
            with pytest.raises(InvalidInput, match=r"hooks=remembering\.hooks"):
                await agents.Runner.run(agent_of_the_sdk(model.url), "Hi.", run_config=remembering.run_config())
    assert isinstance(remembering.session, agents.Session)
    assert not model.asked


async def test_what_is_no_text_is_told_as_json(made_up: Gateway, folder: Path, model_of_numbers: StandIn) -> None:
    model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=model_of_numbers.url, api_key="k"))
    async with made_up.memory(folder) as memory:
        remembering = whence.adapters.pydantic_ai.Remembering(memory, "kitchen")
        result = await Agent(model, output_type=list[int], capabilities=[remembering]).run(["Count ", "to two."])
    assert result.output == [1, 2]
    (told,) = made_up.wire.bodies("/memories/add")
    assert [said["content"] for said in told["messages"]] == ["Count \nto two.", "[1,2]"]


@pytest.fixture
def model_of_numbers() -> Iterator[StandIn]:
    with standing_in(in_turn({"name": "final_result", "response": [1, 2]})) as model:
        yield model
