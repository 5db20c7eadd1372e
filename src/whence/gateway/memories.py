"""Memory over HTTP: remember, look, explain; runs and their episodes; the canon."""

import re
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import delete, get, post, put
from litestar.params import FromPath, QueryParameter

from whence.errors import FieldError, Forbidden, InvalidInput
from whence.gateway.body import decode_as, read_as, read_body
from whence.gateway.events import Caller, TheApp, Wanted
from whence.gateway.problems import field_error
from whence.identity import Principal
from whence.ledger.events import MAX_POSITION
from whence.memory import MAX_BATCH_MEMORIES, MAX_HISTORY, MAX_PAGE_MEMORIES
from whence.memory.own import check_names
from whence.memory.runs import DEFAULT_EPISODES
from whence.wire import (
    AgentProfile,
    AwareTime,
    Canon,
    Episodes,
    Explanation,
    Kind,
    MemoryPage,
    Recall,
    Remember,
    Remembered,
    RememberedBatch,
    RememberedItem,
    Run,
    Runs,
    StoredMemory,
    Tier,
)

Before = Annotated[
    int | None, QueryParameter(ge=1, le=MAX_POSITION, description="Only what was recorded before this position.")
]
PageSize = Annotated[int, QueryParameter(ge=1, le=MAX_PAGE_MEMORIES, description="At most so many.")]
Moment = Annotated[datetime | None, QueryParameter(description="With a time zone.")]


class RememberBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    memories: Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1, max_length=MAX_BATCH_MEMORIES)]


class StartRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    agent: str
    instance: str
    task_type: str | None = None
    session_id: str | None = None
    user_id: str | None = None
    input: Any = None


class Episode(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    text: str
    derived_from: tuple[UUID, ...] = ()
    importance: float | None = None
    valid_at: AwareTime | None = None
    memory_id: UUID | None = None


class Output(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    output: Any = None


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    error: Any = None


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    body: str


class _Probe(msgspec.Struct):
    memories: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_one = msgspec.json.Decoder(Remember)
_NUMBER = re.compile(r"[-+.\deE\s]+")


@post("/v1/memories", status_code=200, summary="Remember something, or a batch of 1 to 500")
async def remember(request: Caller, app: TheApp) -> Remembered | RememberedBatch:
    """Each item of a batch is stored or refused on its own; the results are in input order."""
    body = await read_body(request, app.settings.max_body_bytes)
    if decode_as(body, _Probe).memories is msgspec.UNSET:
        return await app.memory.remember(request.user, decode_as(body, Remember))
    items = [_item(raw) for raw in decode_as(body, RememberBatch).memories]
    sound = [item for item in items if isinstance(item, Remember)]
    done = iter(await app.memory.remember_all(request.user, sound) if sound else [])
    results = [next(done) if isinstance(item, Remember) else item for item in items]
    stored = sum(item.remembered is not None for item in results)
    return RememberedBatch(stored, len(results) - stored, results)


def _item(raw: msgspec.Raw) -> Remember | RememberedItem:
    try:
        return _one.decode(raw)
    except msgspec.ValidationError as error:
        return RememberedItem(errors=(field_error(error, Remember),))
    except UnicodeDecodeError:
        # Whether text is Unicode is seen only when it is decoded, not when a batch is taken apart.
        return RememberedItem(errors=(FieldError("body", "is not valid Unicode"),))


@get("/v1/memories", summary="What is remembered, the newest first")
async def list_memories(  # noqa: PLR0913, PLR0917 (parameters of a query)
    request: Caller,
    app: TheApp,
    agent: Wanted = None,
    tier: Annotated[Tier | None, QueryParameter()] = None,
    kind: Annotated[Kind | None, QueryParameter()] = None,
    session_id: Wanted = None,
    run_id: Annotated[UUID | None, QueryParameter()] = None,
    subject: Wanted = None,
    predicate: Wanted = None,
    as_of: Moment = None,
    known_at: Moment = None,
    before: Before = None,
    limit: PageSize = 100,
) -> MemoryPage:
    """What held at `as_of`, as far as it was known at `known_at`; both are now where they are left out."""
    _check_written_out(request, "as_of", "known_at")
    asked = Recall(
        agent=agent,
        tiers=tier and (tier,),
        kinds=kind and (kind,),
        session_id=session_id,
        subject=subject,
        predicate=predicate,
        as_of=as_of,
        known_at=known_at,
    )
    return await app.memory.page(request.user.scope, asked, before, limit, run_id)


def _check_written_out(request: Caller, *names: str) -> None:
    """In a query a number would be taken for seconds since 1970; in a body it is refused, so it is here."""
    for name in names:
        if _NUMBER.fullmatch(request.query_params.get(name, "")):
            message = "must be a time such as 2026-07-01T12:00:00Z"
            raise InvalidInput(f"{name}: {message}", (FieldError(name, message),))


@get("/v1/memories/{memory_id:uuid}", summary="One memory")
async def get_memory(request: Caller, app: TheApp, memory_id: FromPath[UUID]) -> StoredMemory:
    return await app.memory.get(request.user.scope, memory_id)


@delete("/v1/memories/{memory_id:uuid}", status_code=204, summary="Forget a memory")
async def forget_memory(request: Caller, app: TheApp, memory_id: FromPath[UUID]) -> None:
    """It is no longer recalled. Its history stays; the erasure of a person is another call."""
    await app.memory.forget(request.user, memory_id)


@get("/v1/memories/{memory_id:uuid}/history", summary="What was ever said in its place")
async def get_history(
    request: Caller,
    app: TheApp,
    memory_id: FromPath[UUID],
    after: Annotated[
        int | None, QueryParameter(ge=1, le=MAX_POSITION, description="Only what follows the one at this position.")
    ] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_HISTORY, description="At most so many.")] = MAX_HISTORY,
) -> MemoryPage:
    return await app.memory.history(request.user.scope, memory_id, after, limit)


@get("/v1/memories/{memory_id:uuid}/explain", summary="Why it is believed, since when, and who says so")
async def explain_memory(request: Caller, app: TheApp, memory_id: FromPath[UUID]) -> Explanation:
    return await app.memory.explain(request.user.scope, memory_id)


@post("/v1/runs", status_code=201, summary="Start a run of an agent")
async def start_run(request: Caller, app: TheApp) -> Run:
    asked = await read_as(request, app.settings.max_body_bytes, StartRun)
    return await app.runs.start(
        request.user, asked.agent, asked.instance, asked.task_type, asked.session_id, asked.input, asked.user_id
    )


@get("/v1/runs/{run_id:uuid}", summary="One run")
async def get_run(request: Caller, app: TheApp, run_id: FromPath[UUID]) -> Run:
    return await app.runs.get(request.user.scope, run_id)


@post("/v1/runs/{run_id:uuid}/episodes", status_code=200, summary="Add what happened in a run")
async def add_episode(request: Caller, app: TheApp, run_id: FromPath[UUID]) -> Remembered:
    episode = await read_as(request, app.settings.max_body_bytes, Episode)
    more = {name: value for name, value in msgspec.structs.asdict(episode).items() if name != "text"}
    return await app.runs.add_episode(request.user, run_id, episode.text, **more)


@post("/v1/runs/{run_id:uuid}/complete", status_code=200, summary="The run has done its task")
async def complete_run(request: Caller, app: TheApp, run_id: FromPath[UUID]) -> Run:
    asked = await read_as(request, app.settings.max_body_bytes, Output)
    return await app.runs.end(request.user, run_id, "completed", asked.output)


@post("/v1/runs/{run_id:uuid}/fail", status_code=200, summary="The run has failed")
async def fail_run(request: Caller, app: TheApp, run_id: FromPath[UUID]) -> Run:
    asked = await read_as(request, app.settings.max_body_bytes, Failure)
    return await app.runs.end(request.user, run_id, "failed", asked.error)


@get("/v1/agents/{agent:str}/runs", summary="Runs of an agent, the newest first")
async def list_runs(
    request: Caller, app: TheApp, agent: FromPath[str], instance: Wanted = None, limit: PageSize = 100
) -> Runs:
    """The first run of an instance is its state."""
    return Runs(await app.runs.of_agent(request.user.scope, agent, instance, limit))


@get("/v1/agents/{agent:str}/episodes", summary="The last episodes of an agent, the newest first")
async def list_episodes(
    request: Caller, app: TheApp, agent: FromPath[str], limit: PageSize = DEFAULT_EPISODES
) -> Episodes:
    return Episodes(await app.runs.episodes(request.user.scope, agent, limit))


@get("/v1/agents/{agent:str}/profile", summary="What an agent may remember, and by which rules")
async def agent_profile(request: Caller, app: TheApp, agent: FromPath[str]) -> AgentProfile:
    check_names(agent=agent)
    return app.memory.profiles.in_force(agent)


@get("/v1/canon/{world_id:str}", summary="The rules of a world")
async def list_rules(request: Caller, app: TheApp, world_id: FromPath[str]) -> Canon:
    return Canon(await app.memory.rules(request.user.scope, world_id))


@put("/v1/canon/{world_id:str}/{rule_id:str}", status_code=204, summary="Set a rule that memory must not repeat")
async def set_rule(request: Caller, app: TheApp, world_id: FromPath[str], rule_id: FromPath[str]) -> None:
    rule = await read_as(request, app.settings.max_body_bytes, Rule)
    await app.memory.set_rule(administrator(request.user), world_id, rule_id, rule.body)


@delete("/v1/canon/{world_id:str}/{rule_id:str}", status_code=204, summary="Drop a rule")
async def drop_rule(request: Caller, app: TheApp, world_id: FromPath[str], rule_id: FromPath[str]) -> None:
    await app.memory.drop_rule(administrator(request.user), world_id, rule_id)


def administrator(principal: Principal) -> Principal:
    if not principal.is_admin:
        raise Forbidden("this needs an administrator's key")
    return principal
