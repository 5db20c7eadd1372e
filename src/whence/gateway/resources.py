"""Resources over HTTP: documents that users add, list, look at and delete."""

from contextlib import ExitStack
from typing import Annotated
from uuid import UUID

from litestar import Response, delete, get, post
from litestar.params import FromPath, QueryParameter

from whence.app import App
from whence.errors import FieldError, InvalidInput, Unauthenticated
from whence.gateway.events import Caller, TheApp
from whence.gateway.forms import FILE, MAX_FORM_BYTES, Form, read_form
from whence.gateway.keys import holder
from whence.gateway.memories import Before, PageSize
from whence.memory.partitions import DEFAULT_PART
from whence.resources import File
from whence.resources.spool import Spool
from whence.wire import Resource, ResourcePage

ANSWER_SECONDS = 10.0
"""So long an answer waits for a document to be read; a longer one is read on behind it."""
FIELDS = frozenset({"user_id", "user_key", "app_id", "project_id"})

Partition = Annotated[str, QueryParameter(min_length=1, max_length=256)]


@post(
    "/resources",
    status_code=201,
    request_max_body_size=MAX_FORM_BYTES,
    summary="Add a document: 201, or 200 for one that is there already",
)
async def add_resource(request: Caller, app: TheApp) -> Response[Resource]:
    """A form with `file`; `app_id`, `project_id`. Where there is no bearer key, `user_id` and `user_key` stand before
    the file. The status is `ready` when all of it can be found, `processing` while a long one is read, `failed` with
    the reason."""
    with ExitStack() as held:

        async def begin(fields: dict[str, str]) -> Spool:
            """Only for somebody who is known: a file takes a turn, and room on the disk."""
            if "user" not in request.scope:
                await _holder_before_file(request, app, fields)
            held.enter_context(app.resources.receiving())
            return Spool()

        form = Form(begin)
        try:
            await read_form(request, FIELDS, form)
            principal = await holder(request, app, form.fields.get("user_id"), form.fields.get("user_key"))
            added, is_new = await app.resources.add(principal, _file(form))
        except BaseException:
            form.close()
            raise
    done = await app.resources.settled(principal.scope, added.resource_id, ANSWER_SECONDS)
    return Response(done, status_code=201 if is_new else 200)


async def _holder_before_file(request: Caller, app: App, fields: dict[str, str]) -> None:
    if "user_key" not in fields:
        raise Unauthenticated(
            "this needs a key: send `Authorization: Bearer <key>`, or user_id and user_key before the file"
        )
    await holder(request, app, fields.get("user_id"), fields["user_key"])


def _file(form: Form) -> File:
    if form.spool is None:
        raise InvalidInput("file: is required", (FieldError(FILE, "is required"),))
    return File(
        form.spool,
        form.name,
        form.content_type,
        form.fields.get("user_id"),
        form.fields.get("app_id", DEFAULT_PART),
        form.fields.get("project_id", DEFAULT_PART),
    )


@get("/resources", summary="Documents of a partition, the newest first")
async def list_resources(
    request: Caller,
    app: TheApp,
    app_id: Partition = DEFAULT_PART,
    project_id: Partition = DEFAULT_PART,
    before: Before = None,
    limit: PageSize = 100,
) -> ResourcePage:
    return await app.resources.page(request.user.scope, app_id, project_id, before, limit)


@get("/resources/{resource_id:uuid}", summary="A document: how far it is, and why it failed")
async def get_resource(request: Caller, app: TheApp, resource_id: FromPath[UUID]) -> Resource:
    return await app.resources.get(request.user.scope, resource_id)


@delete("/resources/{resource_id:uuid}", status_code=200, summary="Delete a document, and forget what it says")
async def delete_resource(request: Caller, app: TheApp, resource_id: FromPath[UUID]) -> Resource:
    """Nothing of it is found from then on. Deleting it again changes nothing."""
    gone = await app.resources.delete(request.user, resource_id)
    await app.recaller.forget_session(request.user.workspace_id, gone.uri)
    return gone
