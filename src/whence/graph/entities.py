"""Entities: who and what events tell of, known again by name, by alias, and never joined for being alike."""

import asyncio
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from whence.db import Tx
from whence.db.queries import load
from whence.errors import SetupError
from whence.graph import reading
from whence.graph.batch import Batch, Edges
from whence.graph.likeness import NAMES_WINDOW, Called, Like, alike_names
from whence.graph.names import normalise
from whence.graph.reading import Reading

FIRST_NAMED_PLACE = 8
"""Places below are those of the envelope: the event, its agent, tool, user and resource."""
MAX_COMPARED_NAMES = 4
"""Of the new names of one event as many are compared with earlier ones; a text that is a list of names says little."""

_SQL = load("whence.graph")


class Key(NamedTuple):
    """By what an entity is known again."""

    entity_type: str
    name_key: str
    owner: str
    subject_id: str


class _Entity(NamedTuple):
    node: int
    key: Key
    name: str | None
    sealed_name: bytes | None


class _Alias(NamedTuple):
    """What a name stands for, and how that is called."""

    target: Key
    name: str | None
    sealed_name: bytes | None


async def compare_envelopes(tx: Tx, batch: Batch, fresh: Sequence[Any], edges: Edges) -> None:
    """New agents and tools against those that came before, in the same batch or earlier."""
    groups: dict[tuple[str, str], list[Called]] = {}
    for node, entity_type, name_key, owner in fresh:
        groups.setdefault((owner, entity_type), []).append(Called(node, name_key))
    if not groups:
        return
    values = batch.values(
        owners=[owner for owner, _ in groups],
        entity_types=[entity_type for _, entity_type in groups],
        subject_ids=["" for _ in groups],
        node=(batch.lo + 1) << 6,
        limit=NAMES_WINDOW,
    )
    rows = await (await tx.execute(_SQL["names_before"], values)).fetchall()
    before = {
        place: [Called(node, key) for _, node, key, _ in some] for place, some in groupby(rows, key=itemgetter(0))
    }
    pairs = [(before.get(place, []), names) for place, names in enumerate(groups.values(), 1)]
    found = await asyncio.to_thread(_alike, pairs)
    for (owner, _), likes in zip(groups, found, strict=True):
        for like in likes:
            edges.add(like.node, like.other, "SAME_AS", owner, "alike", like.score)


def _alike(pairs: Sequence[tuple[Sequence[Called], Sequence[Called]]]) -> list[list[Like]]:
    return [alike_names(before, fresh) for before, fresh in pairs]


async def write_names(tx: Tx, batch: Batch, readings: Sequence[Reading], edges: Edges) -> None:
    """Names of payloads: known ones are referred to, new ones are added and compared with those before."""
    mentions = [
        (item, place, mention, _key_of(item, mention.name.entity_type, mention.name.normal))
        for item in readings
        for place, mention in enumerate(item.mentions, FIRST_NAMED_PLACE)
    ]
    if not mentions:
        return
    aliases = await _aliases(tx, batch, list(dict.fromkeys(key for *_, key in mentions)))
    meant = {key: aliases[key].target if key in aliases else key for *_, key in mentions}
    known = await _known(tx, batch, list(dict.fromkeys(meant.values())))
    fresh: list[_Entity] = []
    called: dict[tuple[str, str], list[tuple[Reading, Called]]] = {}
    for item, place, mention, key in mentions:
        target = meant[key]
        if target not in known:
            known[target] = node = item.node + place
            alias = aliases.get(key)
            sealed = alias.sealed_name if alias else reading.seal_name(batch.build.workspace_id, item, mention.name)
            fresh.append(_Entity(node, target, None, sealed))
            if target.entity_type == "name" and alias is None:
                group = called.setdefault((item.owner, item.content.subject_id), [])
                group.append((item, Called(node, mention.name.normal)))
        edges.add(item.node, known[target], "REFERENCES", item.owner, mention.role)
    await _compare_payloads(tx, batch, called, edges)
    await _add(tx, batch, fresh)


async def _compare_payloads(
    tx: Tx, batch: Batch, called: dict[tuple[str, str], list[tuple[Reading, Called]]], edges: Edges
) -> None:
    if not called:
        return
    values = batch.values(
        owners=[owner for owner, _ in called],
        entity_types=["name" for _ in called],
        subject_ids=[subject_id for _, subject_id in called],
        node=(batch.lo + 1) << 6,
        limit=NAMES_WINDOW,
    )
    rows = await (await tx.execute(_SQL["names_before"], values, binary=True)).fetchall()
    sealed = {place: list(some) for place, some in groupby(rows, key=itemgetter(0))}
    pairs = [(sealed.get(place, []), group) for place, group in enumerate(called.values(), 1)]
    found = await asyncio.to_thread(_alike_sealed, batch.build.workspace_id, pairs)
    for (owner, _), likes in zip(called, found, strict=True):
        for like in likes:
            edges.add(like.node, like.other, "SAME_AS", owner, "alike", like.score)


def _alike_sealed(
    workspace_id: str, pairs: Sequence[tuple[Sequence[Any], Sequence[tuple[Reading, Called]]]]
) -> list[list[Like]]:
    found: list[list[Like]] = []
    for rows, group in pairs:
        opened = [(node, _opened(workspace_id, group[0][0], sealed)) for _, node, _, sealed in rows]
        before = [Called(node, normal) for node, normal in opened if normal is not None]
        found.append(alike_names(before, _first_few(group)))
    return found


def _first_few(group: Sequence[tuple[Reading, Called]]) -> list[Called]:
    return [
        called
        for _, some in groupby(group, key=lambda pair: pair[0].node)
        for _, called in list(some)[:MAX_COMPARED_NAMES]
    ]


def _opened(workspace_id: str, item: Reading, sealed: bytes) -> str | None:
    """None where it does not open; that one is then compared with nothing."""
    try:
        return reading.open_name(workspace_id, item.content.key, sealed).normal
    except SetupError:
        return None


async def write_alias(tx: Tx, batch: Batch, item: Reading, alias: reading.Alias, edges: Edges) -> str | None:
    """An alias is the last of its batch: what comes after it is read with it, what came before is not.

    Returns why it cannot be, if so. Names of agents, tools and resources are in clear, and an alias of one is content:
    so it can only join names that envelopes have told of, and brings no text into the clear.
    """
    if alias.entity_type in reading.SEALED_TYPES:
        target, name = (_key_of(item, alias.entity_type, normalise(text)) for text in (alias.name, alias.alias))
        own = _Alias(target, None, reading.seal_name(batch.build.workspace_id, item, reading.as_name(alias)))
    else:
        values = batch.values(entity_type=alias.entity_type, name=alias.name, alias=alias.alias)
        rows = await (await tx.execute(_SQL["clear_names"], values)).fetchall()
        if len(rows) != 1:
            return "name and alias: no event has told of one of them yet"
        target_key, name_key, known_name = rows[0]
        target, name = (Key(alias.entity_type, key, item.owner, "") for key in (target_key, name_key))
        own = _Alias(target, known_name, None)
    meant = (await _aliases(tx, batch, [target])).get(target) or own
    if meant.target == name:
        # It stands for itself, perhaps by way of others.
        return None
    known = await _known(tx, batch, [name, meant.target])
    if name in known:
        if meant.target not in known:
            known[meant.target] = item.node + FIRST_NAMED_PLACE
            await _add(tx, batch, [_Entity(known[meant.target], *meant)])
        edges.add(known[name], known[meant.target], "SAME_AS", item.owner, "alias", 1.0)
    values = batch.values(
        **name._asdict(), target_key=meant.target.name_key, name=meant.name, sealed_name=meant.sealed_name
    )
    await tx.execute(_SQL["add_alias"], values)
    await tx.execute(_SQL["move_aliases"], values)
    return None


def _key_of(item: Reading, entity_type: str, normal: str) -> Key:
    """Of a name in a payload; without its subject's key it tells nothing."""
    content = item.content
    return Key(entity_type, content.key.mark(f"{entity_type}:{normal}"), item.owner, content.subject_id)


async def _aliases(tx: Tx, batch: Batch, keys: Sequence[Key]) -> dict[Key, _Alias]:
    """What these names stand for, where they are aliases."""
    rows = await (await tx.execute(_SQL["known_aliases"], _values(batch, keys), binary=True)).fetchall()
    found: dict[Key, _Alias] = {}
    for place, target_key, name, sealed_name in rows:
        key = keys[int(place) - 1]
        found[key] = _Alias(key._replace(name_key=target_key), name, sealed_name)
    return found


async def _known(tx: Tx, batch: Batch, keys: Sequence[Key]) -> dict[Key, int]:
    rows = await (await tx.execute(_SQL["known_entities"], _values(batch, keys))).fetchall()
    return {keys[int(place) - 1]: node for place, node in rows if node is not None}


async def _add(tx: Tx, batch: Batch, entities: Sequence[_Entity]) -> None:
    if entities:
        values = _values(batch, [entity.key for entity in entities]) | {
            "nodes": [entity.node for entity in entities],
            "names": [entity.name for entity in entities],
            "sealed": [entity.sealed_name for entity in entities],
        }
        await tx.execute(_SQL["add_entities"], values)


def _values(batch: Batch, keys: Sequence[Key]) -> dict[str, object]:
    return batch.values(
        entity_types=[key.entity_type for key in keys],
        name_keys=[key.name_key for key in keys],
        owners=[key.owner for key in keys],
        subject_ids=[key.subject_id for key in keys],
    )
