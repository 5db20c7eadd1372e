"""Seals over HTTP: what was sealed, and proofs that anybody can check without asking us."""

from typing import Annotated
from uuid import UUID

from litestar import get
from litestar.params import FromPath, QueryParameter

from whence.gateway.events import Caller, TheApp
from whence.ledger.events import MAX_POSITION
from whence.ledger.seals import MAX_PAGE_SEALS
from whence.wire import ConsistencyProof, InclusionProof, SealPage

After = Annotated[int, QueryParameter(ge=0, le=MAX_POSITION, description="Only seals of more events than this.")]
Limit = Annotated[int, QueryParameter(ge=1, le=MAX_PAGE_SEALS, description="At most so many seals.")]
From = Annotated[int, QueryParameter(name="from", ge=1, le=MAX_POSITION, description="The size of the earlier seal.")]
To = Annotated[
    int | None,
    QueryParameter(ge=1, le=MAX_POSITION, description="The size of the later seal; the last one if left out."),
]


@get("/v1/seals", summary="Seals in order of size")
async def list_seals(request: Caller, app: TheApp, after: After = 0, limit: Limit = 100) -> SealPage:
    return await app.ledger.seals.page(request.user.scope, after, limit)


@get("/v1/seals/consistency", summary="Proof that a seal adds to an earlier one and changes nothing")
async def get_consistency(request: Caller, app: TheApp, from_: From, to: To = None) -> ConsistencyProof:
    return await app.ledger.seals.consistency(request.user.scope, from_, to)


@get("/v1/events/{event_id:uuid}/proof", summary="Proof that an event is under the last seal")
async def get_proof(request: Caller, app: TheApp, event_id: FromPath[UUID]) -> InclusionProof:
    return await app.ledger.seals.inclusion(request.user.scope, event_id)
