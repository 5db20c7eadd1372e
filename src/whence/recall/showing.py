"""From the rows of what was found to the hits that are shown, with where each came from."""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import msgspec
import numpy as np

from whence.memory.explaining import quoted
from whence.recall.corpus import Corpus
from whence.recall.held import Held
from whence.recall.ranking import Ranked, turns_from
from whence.recall.trust import flags_of, trust_of
from whence.wire import Hit, HitSource, StoredMemory, Turn

CHARACTERS_A_TOKEN = 4


def sources_in(rows: Iterable[tuple[Any, ...]]) -> dict[UUID, list[HitSource]]:
    """What memories were derived from, as far as the asker may see it."""
    found: dict[UUID, list[HitSource]] = {}
    for memory_id, source, role, position, *event, first, last, quote in rows:
        within = None if first is None else (first, last)
        told = HitSource(source, position, role, *event)
        if within is not None:
            told = msgspec.structs.replace(told, byte_range=within, quote=quoted(quote))
        found.setdefault(memory_id, []).append(told)
    return found


def shown(
    ranked: Ranked,
    rows: dict[UUID, StoredMemory],
    sources: dict[UUID, list[HitSource]],
    places: Sequence[tuple[Held, int]],
    neighbours: int,
) -> list[Hit]:
    at = [ranked.starts[id(held)] + index for held, index in places]
    scores = np.round(ranked.scored.scores[at].astype(np.float64), 4).tolist()
    channels = list(ranked.scored.parts)
    parts = np.round(np.array([part[at] for part in ranked.scored.parts.values()], np.float64), 4).T.tolist()
    hits: list[Hit] = []
    for (held, index), whole, each in zip(places, scores, parts, strict=True):
        corpus = held.corpus
        memory = rows[corpus.ids[index]]
        before, after = (
            _turns(corpus, rows, turns_from(side, index, neighbours)) if neighbours else ()
            for side in (corpus.before.rows, corpus.after.rows)
        )
        found = sources.get(memory.memory_id, [])
        of_channels = dict(zip(channels, each, strict=True))
        hits.append(hit_of(memory, whole, of_channels, corpus.is_order(index, memory.text), found, before[::-1], after))
    return hits


def _turns(corpus: Corpus, rows: dict[UUID, StoredMemory], places: Iterable[int]) -> tuple[Turn, ...]:
    """Those that the asker may see."""
    memories = [rows[corpus.ids[place]] for place in places if corpus.ids[place] in rows]
    return tuple(Turn(memory.memory_id, memory.text, memory.speaker) for memory in memories)


def hit_of(
    memory: StoredMemory,
    score_of_it: float,
    parts: dict[Any, float],
    orders: bool,
    sources: list[HitSource],
    before: tuple[Turn, ...] = (),
    after: tuple[Turn, ...] = (),
) -> Hit:
    told = HitSource(
        memory.memory_id,
        memory.position,
        "told",
        memory.recorded_at,
        memory.session_id,
        memory.run_id.hex if memory.run_id else memory.memory_id.hex,
        memory.agent,
    )
    tool = next((source.tool_name for source in sources if source.tool_name), None)
    return Hit(
        *msgspec.structs.astuple(memory),
        score=score_of_it,
        parts=parts,
        trust=trust_of(memory, tool),
        flags=flags_of(memory, orders),
        provenance=(told, *sources),
        before=before,
        after=after,
    )


def within_budget(hits: list[Hit], max_tokens: int | None) -> tuple[list[Hit], int]:
    """The first hits whose texts fit together, and about how many tokens they take."""
    total, kept = 0, 0
    for hit in hits:
        size = sum(map(tokens_of, (hit.text, *(turn.text for turn in (*hit.before, *hit.after)))))
        if max_tokens is not None and total + size > max_tokens:
            break
        total += size
        kept += 1
    return hits[:kept], total


def tokens_of(text: str) -> int:
    """About as many as models count: four letters make one, and so does a sign of a script without spaces."""
    wide = sum(ord(sign) > 0x2E7F for sign in text) if not text.isascii() else 0
    return wide + -(-(len(text) - wide) // CHARACTERS_A_TOKEN)
