"""Whence opened inside another program: the same parts as `whence serve`, without a socket."""

import asyncio
import hmac
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from whence.app import DEFAULT_WORKSPACE, App, ensure_default_workspace, open_app
from whence.gateway.boundary import Asgi
from whence.gateway.http import build
from whence.identity import ADMIN_USER, Identity, Principal, check_user_id
from whence.logs import leave_logs_to_host
from whence.settings import load_settings
from whence.worker import work


class _OneMoreKey(Identity):
    """The keys of the workspace, and one that lives as long as this process.

    Whoever runs it can read the data and the key file anyway, so a stored key would prove nothing; and there may be
    none to read: users' keys are shown once, and the administrator's may have been replaced or be kept elsewhere.
    """

    def __init__(self, app: App, key: str, principal: Principal) -> None:
        super().__init__(app.database, app.clock)
        self._key = key.encode()
        self._principal = principal

    async def authenticate(self, key: str) -> Principal:
        if hmac.compare_digest(key.encode("utf-8", "surrogatepass"), self._key):
            return self._principal
        return await super().authenticate(key)


@asynccontextmanager
async def open_inside(
    data_dir: Path | None, user: str | None, database_url: str | None = None
) -> AsyncGenerator[tuple[Asgi, str]]:
    """The routes, and the key that they are called with: an administrator's, or that of `user`."""
    user_id = ADMIN_USER if user is None else user
    check_user_id(user_id)
    leave_logs_to_host()
    async with open_app(load_settings({"data_dir": data_dir, "database_url": database_url})) as app:
        await ensure_default_workspace(app)
        key = secrets.token_urlsafe(32)
        who = Principal(DEFAULT_WORKSPACE, user_id, is_admin=user_id == ADMIN_USER)
        working = asyncio.create_task(work(app))
        try:
            yield build(replace(app, identity=_OneMoreKey(app, key, who))), key
        finally:
            app.stopping.set()
            await working
