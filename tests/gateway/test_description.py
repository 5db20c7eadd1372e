"""The description of the server, held to what it does: whatever a caller makes of it is answered as it says."""

import uuid
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from conftest import Server
from whence.app import App
from whence.gateway.boundary import KEY_IN_BODY, STREAM_PATH
from whence.gateway.http import ROUTES
from whence.gateway.openapi import document

EXAMPLES = 15
"""Of each operation, always the same."""
CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)

_SCHEMA = schemathesis.openapi.from_dict(document(ROUTES))
OPERATIONS = [
    result.ok()
    for result in _SCHEMA.get_all_operations()
    # It has no end.
    if result.ok().path != STREAM_PATH
]


@pytest.fixture(scope="module")
async def keys(app: App) -> dict[str, str]:
    """An administrator's, and for chats a user's own."""
    workspace_id = f"described-{uuid.uuid4().hex[:8]}"
    admin = await app.identity.add_workspace(workspace_id)
    return {"admin": admin, "user": await app.identity.add_user(workspace_id, "ann")}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_whatever_is_sent_is_answered_as_described(operation: Any, server: Server, keys: dict[str, str]) -> None:
    key = keys["user" if (operation.method.upper(), operation.path) in KEY_IN_BODY else "admin"]

    @given(case=operation.as_strategy())
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    def answered(case: Any) -> None:
        case.call_and_validate(
            base_url=server.url, headers={"Authorization": f"Bearer {key}"}, checks=CHECKS, timeout=20
        )

    answered()
