"""Partitions of the gateway: each pair of app and project is an agent of its own, so that no search crosses them."""

from typing import Final
from urllib.parse import quote

from whence.ledger.events import MAX_IDENTIFIER_CHARACTERS
from whence.memory.own import check_names
from whence.memory.profiles import DEFAULT_PROFILE
from whence.memory.writing import refused

DEFAULT_PARTITION: Final = "default"


def partition_agent(app_id: str, project_id: str) -> str:
    """Escaped, so that no two pairs meet."""
    check_names(app_id=app_id, project_id=project_id)
    if app_id == project_id == DEFAULT_PARTITION:
        return DEFAULT_PROFILE
    agent = f"{DEFAULT_PROFILE}:{quote(app_id, safe='')}/{quote(project_id, safe='')}"
    if len(agent) > MAX_IDENTIFIER_CHARACTERS:
        raise refused("app_id", "is too long together with project_id")
    return agent
