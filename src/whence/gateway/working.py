"""Working memory over HTTP: values under keys, until they expire."""

from typing import Annotated

import msgspec
from litestar import delete, get, put
from litestar.params import PathParameter

from whence.gateway.body import decode_as, read_body
from whence.gateway.events import Caller, TheApp
from whence.memory.working import DEFAULT_TTL_S, MAX_TTL_S, MIN_TTL_S
from whence.wire import WorkingEntry, WorkingKeys, WorkingStored

Agent = Annotated[str, PathParameter(description="The kind of agent.")]
Instance = Annotated[str, PathParameter(description="Which one of them.")]
Key = Annotated[str, PathParameter(description="The key.")]


class WorkingRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: msgspec.Raw
    ttl_s: Annotated[int, msgspec.Meta(ge=MIN_TTL_S, le=MAX_TTL_S)] = DEFAULT_TTL_S


@put("/v1/working/{agent:str}/{instance:str}/{key:str}", summary="Put a value under a key, until it expires")
async def put_working(request: Caller, app: TheApp, agent: Agent, instance: Instance, key: Key) -> WorkingStored:
    """In place of what was there. A value that does not fit into what is left of the instance's budget is refused with
    413, and changes nothing."""
    asked = decode_as(await read_body(request, app.settings.max_body_bytes), WorkingRequest)
    return await app.working.put(request.user.scope, agent, instance, key, bytes(asked.value), asked.ttl_s)


@get("/v1/working/{agent:str}/{instance:str}/{key:str}", summary="The value under a key")
async def get_working(request: Caller, app: TheApp, agent: Agent, instance: Instance, key: Key) -> WorkingEntry:
    return await app.working.get(request.user.scope, agent, instance, key)


@delete("/v1/working/{agent:str}/{instance:str}/{key:str}", summary="Remove a key and its value")
async def delete_working(request: Caller, app: TheApp, agent: Agent, instance: Instance, key: Key) -> None:
    await app.working.delete(request.user.scope, agent, instance, key)


@get("/v1/working/{agent:str}/{instance:str}", summary="The keys of an instance, with their sizes")
async def list_working(request: Caller, app: TheApp, agent: Agent, instance: Instance) -> WorkingKeys:
    return await app.working.keys(request.user.scope, agent, instance)
