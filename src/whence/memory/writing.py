"""From what somebody asks to be remembered to the event that says so: checked, sanitised, normalised.

The document of an event is all that memory is made from, now and when it is rebuilt. So everything that may change
later, such as a profile, is looked up here, and the document holds what was found.
"""

import hashlib
import math
import re
import struct
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt

from whence.errors import FieldError, InvalidInput
from whence.identity import Principal, check_user_id
from whence.ids import new_id
from whence.ledger.effects import Effect, OwnEvent, Plain, Told, Vector
from whence.ledger.events import (
    EARLIEST,
    LATEST,
    MAX_IDENTIFIER_CHARACTERS,
    MAX_PAYLOAD_BYTES,
    text_problem,
)
from whence.ledger.payloads import subject_of
from whence.memory.profiles import Profile, Profiles, check_cell
from whence.memory.sanitise import Category, sanitise
from whence.wire import Event, Fact, Remember

MAX_TEXT_CHARACTERS = 20_000
MAX_SOURCES = 100
MAX_EMBEDDING_COMPONENTS = 4_096
DEFAULT_IMPORTANCE = 0.5
DEFAULT_CONFIDENCE = 0.8
"""Of a fact whose teller does not say how sure it is."""
GIVEN_EMBEDDER: Final = "given"
BETWEEN: Final = "\x1f"
"""Stands between a subject and a predicate in a key; neither can have it."""

_LEAST: Final = 1e-140
_MOST: Final = 1e140
"""Of lengths whose squares have all their digits."""

_KEPT: Final = np.dtype(">f2")
"""How the components of a vector are kept and travel."""

Unit = npt.NDArray[np.float16]
"""A vector of length one."""

_NAMES: Final = (
    "agent",
    "user_id",
    "subject_id",
    "session_id",
    "interaction_id",
    "world_id_context",
    "key",
    "speaker",
)
_names_in = attrgetter(*_NAMES)

_FOUND_OUT: Final = frozenset({"origin", "role"})
"""Of a source, and not told by the sender."""

_CONTROL: Final = re.compile(r"[\x01-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
"""Characters that are neither seen nor space."""

_encode = msgspec.json.Encoder(order="deterministic").encode


class Document(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """What an event says of a memory. The fields are in order of their names, as a canonical payload has them."""

    agent: str
    body: str
    body_hash: str
    confidence: float | None = None
    conflict: str
    conflict_key: str | None = None
    effect: str
    event_id: UUID
    fact_object: str | None = None
    fact_predicate: str | None = None
    fact_subject: str | None = None
    idle_days: int | None = None
    importance: float
    interaction_id: str | None = None
    item: dict[str, Any] | None = None
    kind: str
    object_key: str | None = None
    profile: str
    role: str | None = None
    run_id: UUID | None = None
    said_by: str | None = None
    sanitised: dict[str, int] | None = None
    session_id: str | None = None
    sources: list[dict[str, str | int]]
    speaker: str | None = None
    subject_id: str
    support: int | None = None
    tier: str
    ttl_s: float | None = None
    user_id: str | None = None
    valid_at: datetime | None = None
    world_id_context: str | None = None


class Draft(NamedTuple):
    """A request that is sound, with what was found about it."""

    request: Remember
    principal: Principal
    profile_name: str
    profile: Profile
    event_id: UUID
    user_id: str | None
    """Whom the event is by."""
    text: str
    fact: Fact | None
    sanitised: dict[str, int]
    changed: frozenset[str]
    """The fields that something was taken out of: what was said there is not known any more."""
    vector: Unit | None


def draft(
    principal: Principal,
    request: Remember,
    profiles: Profiles,
    named: str | None = None,
    possible: Sequence[Category] | None = None,
    vector: Unit | None = None,
) -> Draft:
    """By the agent's profile, or by the one that is named. `possible` is what its text may hold that must not be
    remembered, and `vector` its embedding of length one, where they are known. Raises InvalidInput that names the
    field."""
    for field, value in zip(_NAMES, _names_in(request), strict=True):
        if value is not None:
            check_name(field, value, MAX_IDENTIFIER_CHARACTERS)
    name, profile = profiles.of(request.agent) if named is None else (named, profiles.named(named))
    check_cell(name, profile, request.tier, request.kind)
    _check_anchors(request, name, profile)
    if request.key is not None and profile.conflict_of("procedural") == "accumulate":
        raise refused("key", f"the profile {name} keeps all procedures side by side, so none has one")
    _check_numbers(request)
    if request.key is not None or request.speaker is not None:
        check_clean(name, profile, key=request.key, speaker=request.speaker)
    user_id = owner_of(principal, request.user_id, name, profile)
    cleaned = _Cleaner(name, profile)
    text = cleaned.clean("text", request.text, MAX_TEXT_CHARACTERS, possible)
    fact = request.fact and Fact(
        cleaned.clean("fact.subject", request.fact.subject, MAX_IDENTIFIER_CHARACTERS),
        cleaned.clean("fact.predicate", request.fact.predicate, MAX_IDENTIFIER_CHARACTERS),
        cleaned.clean("fact.object", request.fact.object, MAX_TEXT_CHARACTERS),
        DEFAULT_CONFIDENCE if request.fact.confidence is None else request.fact.confidence,
    )
    if vector is None and request.embedding is not None:
        vector = unit_given(request.embedding)
    event_id = request.memory_id or new_id()
    changed = frozenset(cleaned.changed)
    return Draft(request, principal, name, profile, event_id, user_id, text, fact, cleaned.found, changed, vector)


def event_of(
    drafted: Draft,
    vector: Vector,
    sources: dict[UUID, bool],
    now: datetime,
    support: int | None = None,
    origins: Mapping[UUID, UUID] = MappingProxyType({}),
) -> OwnEvent:
    """`sources` are the ids that it is derived from, each with whether it is a memory; `origins` the memories that say
    the same which some of them have found or told."""
    request, profile = drafted.request, drafted.profile
    # A thread lives in a session; where nobody says in which, it is one of its own.
    thread = f"thread:{request.interaction_id}" if request.tier == "interaction" else None
    session_id = request.session_id or thread
    event = Event(
        event_id=drafted.event_id,
        event_type="memory.remembered",
        occurred_at=now,
        session_id=session_id or f"memory:{request.agent}",
        trace_id=request.run_id.hex if request.run_id else drafted.event_id.hex,
        agent_id=request.agent,
        user_id=drafted.user_id,
        subject_id=request.subject_id,
        # What it comes from caused it, so that a lineage leads there.
        parent_event_id=next(iter(sources), None) or request.run_id,
        status="completed",
    )
    conflict = profile.conflict_of(request.kind)
    fact = drafted.fact
    key, object_key = _keys(drafted) if conflict != "accumulate" else (None, None)
    document = Document(
        agent=request.agent,
        body=drafted.text,
        body_hash=body_hash(drafted),
        confidence=fact and fact.confidence,
        conflict=conflict,
        conflict_key=key,
        effect="remember",
        event_id=drafted.event_id,
        fact_object=fact and fact.object,
        fact_predicate=fact and fact.predicate,
        fact_subject=fact and fact.subject,
        idle_days=profile.idle_days if session_id else None,
        importance=DEFAULT_IMPORTANCE if request.importance is None else request.importance,
        interaction_id=request.interaction_id,
        kind=request.kind,
        object_key=object_key,
        profile=drafted.profile_name,
        role=request.role,
        run_id=request.run_id,
        said_by=drafted.principal.user_id,
        sanitised=drafted.sanitised or None,
        session_id=session_id,
        sources=_sources(drafted, sources, origins),
        speaker=request.speaker,
        subject_id=subject_of(event),
        support=support,
        tier=request.tier,
        user_id=owner_in(drafted),
        valid_at=request.valid_at,
        world_id_context=request.world_id_context,
    )
    written = _encode(document)
    given = b"" if drafted.vector is None else b'"embedding":%b,' % _encode(drafted.vector.tobytes())
    payload = b'{%b"memory":%b}' % (given, written)
    effect = Effect(written, drafted.event_id, vector, _plain(document, vector.embedder))
    return OwnEvent(event, payload, effect, is_canonical=True)


def _plain(document: Document, embedder: str) -> Plain | None:
    """Its row, where it is only to be stored, and says nothing that such rows have no column for."""
    source = document.sources[0]
    if (
        document.conflict_key is not None
        or document.session_id is not None
        or document.interaction_id is not None
        or document.run_id is not None
        or document.fact_subject is not None
        or source["role"] != "told"
    ):
        return None
    told = Told(
        document.user_id,
        document.said_by,
        document.profile,
        document.tier,
        document.kind,
        document.world_id_context,
        # As JSON numbers are: minus nothing is nothing.
        document.importance + 0.0,
        document.valid_at,
        _encode(document.sanitised).decode() if document.sanitised else None,
        document.speaker,
        document.role,
        str(source["source"]),
        embedder,
    )
    return Plain(document.body, bytes.fromhex(document.body_hash), told)


def document_of(payload: bytes) -> dict[str, Any]:
    """What an event of memory says, out of its payload."""
    return msgspec.json.decode(payload)["memory"]


def told_in(payload: bytes) -> tuple[dict[str, Any], str | None]:
    """All that somebody told, out of its payload: what the event says, but for what was found out about it, and the
    embedding that came with it."""
    decoded = msgspec.json.decode(payload)
    document = decoded["memory"]
    sources = [{name: each[name] for name in each if name not in _FOUND_OUT} for each in document["sources"]]
    # By what it is compared follows from what was told, by the rules of then.
    return {**document, "sources": sources, "body_hash": None}, decoded.get("embedding")


def vector_in(payload: dict[str, Any]) -> Vector | None:
    """The embedding that the sender gave, as it was kept in the payload."""
    given: bytes | None = payload.get("embedding") and msgspec.convert(payload["embedding"], bytes, strict=False)
    if given is None:
        return None
    return Vector(GIVEN_EMBEDDER, np.frombuffer(given, ">f2"))


def normal(text: str) -> str:
    """How texts are compared: without regard to case, width, space and signs that are not seen."""
    # Nearly all are printable ASCII, which has no such signs.
    if not (text.isascii() and text.isprintable()):
        text = _CONTROL.sub("", text)
        seen = "".join(filter(_is_seen, unicodedata.normalize("NFKC", text)))
        # A letter and its accent are one again where something stood between them.
        text = unicodedata.normalize("NFKC", seen)
    return " ".join(text.casefold().split())


def _is_seen(sign: str) -> bool:
    """Unlike spaces without a width, joiners, soft hyphens and marks of direction."""
    return unicodedata.category(sign) != "Cf"


def _hash_of(text: str, ids: Sequence[str]) -> str:
    """Of the text as it is compared, and of ids as they are."""
    return hashlib.sha256(BETWEEN.join([normal(text), *ids]).encode()).hexdigest()


def _keys(drafted: Draft) -> tuple[str | None, str | None]:
    """What can be said once only, and what is said of it: in its world, and about whom it is about.

    Where something was taken out, two that look alike may have been different, so they are not taken for the same."""
    request, fact = drafted.request, drafted.fact
    within = f"{BETWEEN}{request.world_id_context or ''}{BETWEEN}{request.subject_id or ''}"
    if fact is not None:
        if drafted.changed & {"fact.subject", "fact.predicate"}:
            return None, None
        said = drafted.event_id.hex if "fact.object" in drafted.changed else normal(fact.object)
        return f"{normal(fact.subject)}{BETWEEN}{normal(fact.predicate)}{within}", said
    if request.key is not None:
        return f"{normal(request.key)}{BETWEEN}{within}", body_hash(drafted)
    return None, None


def keys_between(subject: str, predicate: str | None) -> tuple[str, str]:
    """The keys of all that is said of the subject, or of both, whatever the world: from the first up to the second."""
    begins = BETWEEN.join([normal(subject), *([] if predicate is None else [normal(predicate)]), ""])
    # The next character after the one that stands between.
    return begins, f"{begins[:-1]}{chr(ord(BETWEEN) + 1)}"


def body_hash(drafted: Draft) -> str:
    """By which texts, and facts that accumulate, are known for the same."""
    request, fact = drafted.request, drafted.fact
    if drafted.changed:
        return _hash_of(drafted.text, [str(drafted.event_id)])
    ids: list[str] = []
    if request.world_id_context or request.subject_id:
        ids += [request.world_id_context or "", request.subject_id or ""]
    if request.speaker:
        ids.append(f"speaker:{request.speaker}")
    if fact is not None and drafted.profile.conflict_of(request.kind) == "accumulate":
        ids += ["fact:", normal(fact.subject), normal(fact.predicate), normal(fact.object)]
    return _hash_of(drafted.text, ids)


def _sources(drafted: Draft, found: dict[UUID, bool], origins: Mapping[UUID, UUID]) -> list[dict[str, str | int]]:
    request = drafted.request
    if found:
        within = request.byte_range
        return [
            # In order of names, as a canonical payload has them.
            {
                **({"byte_from": within[0], "byte_to": within[1]} if within is not None and place == 0 else {}),
                **({"origin": str(origins[source])} if source in origins else {}),
                "role": "memory" if is_memory else "event",
                "source": str(source),
            }
            for place, (source, is_memory) in enumerate(found.items())
        ]
    teller = (
        f"run:{request.run_id}"
        if request.run_id
        else f"session:{request.session_id}"
        if request.session_id
        else f"user:{drafted.principal.user_id}"
    )
    return [{"source": teller, "role": "told"}]


def owner_in(drafted: Draft) -> str | None:
    """Whose memory it is; None stands for the workspace."""
    return drafted.profile.owner(drafted.user_id)


def owner_of(principal: Principal, named: str | None, name: str, profile: Profile) -> str | None:
    """A user's memory is that user's; only an administrator writes for others."""
    if not principal.is_admin and named not in (None, principal.user_id):
        raise refused("user_id", "must be left out or be the user whose key this is")
    if named is not None:
        check_user_id(named)
    user_id = named if principal.is_admin else principal.user_id
    if user_id is None and profile.anchor == "user":
        raise refused("user_id", f"is needed: memory of the profile {name} hangs on a user")
    return user_id


def _check_anchors(request: Remember, name: str, profile: Profile) -> None:
    if request.tier == "session" and request.session_id is None:
        raise refused("session_id", "is needed for the session tier")
    if request.tier == "interaction" and request.interaction_id is None:
        raise refused("interaction_id", "is needed for the interaction tier")
    if request.kind == "semantic" and profile.canon != "none" and request.world_id_context is None:
        raise refused("world_id_context", f"is needed: the profile {name} has a canon")
    if request.fact is not None and request.kind != "semantic":
        raise refused("fact", "only semantic memory holds facts")
    if request.key is not None and request.kind != "procedural":
        raise refused("key", "only procedural memory has one")
    if request.valid_at is not None and request.kind == "procedural":
        raise refused("valid_at", "procedural memory holds from when it is told")


def _check_numbers(request: Remember) -> None:
    confidence = request.fact and request.fact.confidence
    if confidence is not None and not 0 <= confidence <= 1:
        raise refused("fact.confidence", "from 0 to 1")
    if request.importance is not None and not 0 <= request.importance <= 1:
        raise refused("importance", "from 0 to 1")
    if request.valid_at is not None and request.valid_at.tzinfo is None:
        raise refused("valid_at", "needs a time zone, such as a final Z")
    if request.valid_at is not None and not EARLIEST <= request.valid_at < LATEST:
        raise refused("valid_at", "from the year 1970 to the year 2261")
    if len(request.derived_from) > MAX_SOURCES:
        raise refused("derived_from", f"at most {MAX_SOURCES}")
    if request.byte_range is not None:
        if not request.derived_from:
            raise refused("byte_range", "needs `derived_from`, in the first of which it is")
        if not 0 <= request.byte_range[0] < request.byte_range[1] <= MAX_PAYLOAD_BYTES:
            raise refused("byte_range", f"from 0 to {MAX_PAYLOAD_BYTES:,}, the end past the start")
    if request.memory_id in request.derived_from:
        raise refused("derived_from", "a memory cannot come from itself")


def units_given(embeddings: Sequence[tuple[float, ...] | None]) -> Sequence[Unit | None]:
    """What `unit_given` makes of each, in half the time; None for all where one is missing, has another form or is not
    a vector: then each is to be looked at by itself."""
    unknown: list[Unit | None] = [None] * len(embeddings)
    given = [embedding for embedding in embeddings if embedding]
    if len(given) < max(2, len(embeddings)) or len(set(map(len, given))) > 1:
        return unknown
    size = len(given[0])
    if size > MAX_EMBEDDING_COMPONENTS:
        return unknown
    numbers = struct.Struct(f"{size}d").pack
    vectors = np.frombuffer(b"".join([numbers(*embedding) for embedding in given])).reshape(-1, size)
    with np.errstate(over="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    if not ((lengths >= _LEAST) & (lengths <= _MOST)).all():
        return unknown
    return list((vectors / lengths[:, None]).astype(_KEPT))


def unit_given(embedding: tuple[float, ...]) -> Unit:
    """Of length one, rounded as it is kept, two bytes a component: a rebuild from what is kept finds the same."""
    if not 1 <= len(embedding) <= MAX_EMBEDDING_COMPONENTS:
        raise refused("embedding", f"from 1 to {MAX_EMBEDDING_COMPONENTS:,} numbers")
    # As numbers in memory first: numpy takes three times as long for a list.
    vector = np.frombuffer(struct.pack(f"{len(embedding)}d", *embedding))
    # Squares of large numbers and of small ones would be no numbers any more; this takes care of that.
    length = math.hypot(*embedding)
    if not _LEAST <= length <= _MOST and 0 < (largest := float(np.abs(vector).max())) < math.inf:
        # Each is a number, and their length is none, or is rounded to few digits.
        vector = vector / largest
        length = math.hypot(*vector)
    if not math.isfinite(length) or length == 0:
        raise refused("embedding", "must be finite and not all zero")
    return (vector / length).astype(_KEPT)


class _Cleaner:
    """Sanitises the texts of one request by its profile, and counts what was found."""

    def __init__(self, name: str, profile: Profile) -> None:
        self._name = name
        self._rules = profile.sanitise
        self.found: dict[str, int] = {}
        self.changed: set[str] = set()

    def clean(self, field: str, text: str, limit: int, possible: Sequence[Category] | None = None) -> str:
        check_name(field, text, limit)
        done = sanitise(text, self._rules, possible)
        if done.refused:
            what = ", ".join(category.replace("_", " ") for category in done.refused)
            raise refused(field, f"holds what the profile {self._name} refuses: {what}")
        for category, count in done.found.items():
            self.found[category] = self.found.get(category, 0) + count
            self.changed.add(field)
        return done.text


def check_name(field: str, text: str, limit: int) -> None:
    problem = text_problem(text, limit)
    if problem is not None:
        raise refused(field, problem)
    if BETWEEN in text:
        raise refused(field, "must not contain the control character U+001F")
    if not text[0].isalnum() and not any(_is_seen(sign) and not sign.isspace() for sign in _CONTROL.sub("", text)):
        raise refused(field, "must not be blank")


def check_clean(profile_name: str, profile: Profile, **names: str | None) -> None:
    """Something is found by its name, so nothing is taken out of one: what is replaced elsewhere is refused here."""
    for field, text in names.items():
        found = sanitise(text, profile.sanitise).found if text is not None else {}
        if found:
            what = ", ".join(category.replace("_", " ") for category in found)
            raise refused(field, f"holds what the profile {profile_name} keeps out of memory: {what}")


def refused(field: str, message: str) -> InvalidInput:
    return InvalidInput(f"{field}: {message}", (FieldError(field, message),))
