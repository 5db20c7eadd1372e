"""Items over HTTP: values under namespaces and keys, many things in one request."""

from litestar import post

from whence.gateway.body import read_as
from whence.gateway.events import Caller, TheApp
from whence.wire import ItemsAnswer, ItemsRequest


@post("/v1/items", status_code=200, summary="Get, put, delete, search and list items, up to 1,000 at once")
async def do_with_items(request: Caller, app: TheApp) -> ItemsAnswer:
    """What is read is read before anything is written; what is written is written together, or not at all."""
    asked = await read_as(request, app.settings.max_body_bytes, ItemsRequest)
    return ItemsAnswer(await app.items.do(request.user, asked))
