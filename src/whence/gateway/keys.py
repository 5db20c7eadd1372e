"""Whose request it is, where the key may stand in the body: with the id of its user, instead of a bearer token."""

from typing import Any

from whence.app import App
from whence.errors import Unauthenticated
from whence.gateway.events import Caller
from whence.identity import Principal
from whence.memory.writing import refused


async def holder(request: Caller, app: App, user_id: str | None, user_key: str | None) -> Principal:
    """Who holds the key. One that is wrong and a user who is not there are told in the same way."""
    scope: Any = request.scope
    bearer: Principal | None = scope.get("user")
    if user_key is None:
        if bearer is None:
            raise Unauthenticated("this needs a key: send `Authorization: Bearer <key>`, or user_id and user_key")
        return bearer
    if user_id is None:
        raise refused("user_id", "is needed with user_key")
    given = await app.identity.authenticate(user_key)
    if given != (bearer or given) or (not given.is_admin and given.user_id != user_id):
        raise Unauthenticated("the key is not valid")
    if bearer is None:
        scope["admit"](given)
    return given
