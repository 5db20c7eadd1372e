"""From the hits of a recall to what a search answers: each with the scope that it is in."""

from collections.abc import Sequence

from whence.resources import RESOURCE_SCHEME
from whence.wire import Hit, SearchResult, SearchScope


def results_of(hits: Sequence[Hit], scopes: Sequence[SearchScope], chat: str) -> list[SearchResult]:
    """`chat` is the session of the current one."""
    return [_result(hit, _scope_of(hit, scopes, chat)) for hit in _said_once(hits)]


def _said_once(hits: Sequence[Hit]) -> list[Hit]:
    """What is drawn from a message that is a hit itself says nothing more: it comes after all else."""
    found = {hit.memory_id for hit in hits}
    again = {
        hit.memory_id
        for hit in hits
        if hit.kind == "semantic" and any(source.event_id in found for source in hit.provenance[1:])
    }
    return sorted(hits, key=lambda hit: hit.memory_id in again)


def _scope_of(hit: Hit, scopes: Sequence[SearchScope], chat: str) -> SearchScope:
    """The narrowest of those that were asked for."""
    if "current_chat" in scopes and hit.session_id == chat:
        return "current_chat"
    if "resources" in scopes and (hit.session_id or "").startswith(RESOURCE_SCHEME):
        return "resources"
    return "all_user_memory"


def _result(hit: Hit, scope: SearchScope) -> SearchResult:
    session_id = hit.session_id or ""
    return SearchResult(
        id=hit.memory_id,
        session_id=hit.session_id,
        text=hit.text,
        score=hit.score,
        source_scope=scope,
        resource_uri=session_id if session_id.startswith(RESOURCE_SCHEME) else None,
        timestamp=round(hit.valid_at.timestamp() * 1000),
        role=hit.role,
        sender_id=hit.speaker,
        kind=hit.kind,
        provenance=hit.provenance,
        trust=hit.trust,
        flags=hit.flags,
        location=hit.location,
    )
