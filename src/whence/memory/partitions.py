"""Partitions: what an application or a project keeps apart is the memory of an agent of its own.

Everything in memory goes by agent already: what is searched, what conflicts with what, what a session is. So nothing of
one partition can be met in another, and no table needs a column more.
"""

from typing import Final

from whence.memory.own import check_names
from whence.memory.writing import refused

AGENT: Final = "gateway"
DEFAULT_PART: Final = "default"
MAX_PART_CHARACTERS = 120
"""Of an `app_id` or a `project_id` as it stands in the name of the agent, so that both fit."""


def agent_of(app_id: str = DEFAULT_PART, project_id: str = DEFAULT_PART) -> str:
    """`gateway` where neither is named, else `gateway/APP/PROJECT`. Slashes in them are escaped, so that no two pairs
    have the same agent."""
    app, project = _part("app_id", app_id), _part("project_id", project_id)
    return AGENT if (app, project) == (DEFAULT_PART, DEFAULT_PART) else f"{AGENT}/{app}/{project}"


def _part(field: str, name: str) -> str:
    check_names(**{field: name})
    escaped = name.replace("%", "%25").replace("/", "%2F")
    if len(escaped) > MAX_PART_CHARACTERS:
        raise refused(field, f"at most {MAX_PART_CHARACTERS} characters, where / and % count as three")
    return escaped
