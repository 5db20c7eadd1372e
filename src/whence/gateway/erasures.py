"""What is held on a person over HTTP: erased, with a receipt, and exported. For administrators."""

from urllib.parse import quote
from uuid import UUID

import msgspec
from litestar import get, post
from litestar.params import FromPath
from litestar.response import Stream

from whence.gateway.body import read_as
from whence.gateway.events import Caller, TheApp
from whence.gateway.memories import administrator
from whence.wire import Erasure


class Erase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    subject_id: str


@post("/v1/erasures", status_code=200, summary="Erase everything that is held on a subject")
async def erase(request: Caller, app: TheApp) -> Erasure:
    """Answers with the receipt when all is done. Of a subject that was erased before, and of whom nothing came since,
    it is the first one."""
    principal = administrator(request.user)
    asked = await read_as(request, app.settings.max_body_bytes, Erase)
    receipt = await app.erasures.erase(principal, asked.subject_id)
    app.recaller.forget(principal.workspace_id)
    return receipt


@get("/v1/erasures/{erasure_id:uuid}", summary="The receipt of an erasure")
async def get_erasure(request: Caller, app: TheApp, erasure_id: FromPath[UUID]) -> Erasure:
    return await app.erasures.get(administrator(request.user).scope, erasure_id)


@get("/v1/subjects/{subject_id:str}/export", summary="Everything that is held on a subject, as a ZIP of JSON lines")
async def export_subject(request: Caller, app: TheApp, subject_id: FromPath[str]) -> Stream:
    export = await app.exports.begin(administrator(request.user).scope, subject_id)
    name = quote(f"{subject_id}.zip", safe="")
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
    return Stream(export.archive(), media_type="application/zip", headers=headers)
