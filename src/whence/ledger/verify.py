"""Verifying: every envelope, tile and seal is read again, and what does not fit together is named.

Two trees grow side by side: one from the envelopes as they are, one from the hashes that were stored when they were
sealed. Where they differ, the seals say which of the two is what was sealed. What was committed before is never changed
by a server, so this reads in small transactions while appends and seals go on.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, NamedTuple

import msgspec

from whence.db import Database, Scope, Tx
from whence.db.queries import load
from whence.ledger.leaves import Row, hash_of_leaf, position_of
from whence.ledger.tree import last_seal, read_leaves, read_tiles, seals_between
from whence.merkle import HASH_BYTES, TILE_HASHES, Log, Range, Tile, Tiles

MAX_DIFFERENCES = 100
CHUNK_TILES = 16
_CHUNK_EVENTS = CHUNK_TILES * TILE_HASHES

_SQL = load("whence.ledger")
_NO_HASH = bytes(HASH_BYTES)

Progress = Callable[[int, int], None]
"""Is told how many positions are done, and how many there are."""

Kind = Literal["changed", "missing", "twice", "head", "tile", "seal", "expected"]

_CHANGED = "the envelope is not the one that was sealed"
_MISSING = "no event is stored here"
_TWICE = "more than one event is stored here"
_OUTSIDE = "an event is stored where none was appended"
_GONE = "the seal of this size, whose root was expected, is gone"
_SEAL = "the seal of this size was changed"
_HASH = "the stored hash was changed; the envelope is the one that was sealed"


class Expected(NamedTuple):
    """A root that was kept where those who can write to this database cannot change it."""

    size: int
    root: bytes


class Difference(msgspec.Struct, frozen=True):
    """What is wrong from position `first` to position `last`."""

    kind: Kind
    first: int
    last: int
    detail: str


class Verification(msgspec.Struct, frozen=True):
    workspace_id: str
    events: int
    """The envelopes that were read and compared."""
    seals: int
    sealed: int
    """The size of the last seal."""
    root: str
    """Of the envelopes up to there, as they are now."""
    unsealed: int
    """The events past the last seal, which nothing vouches for yet."""
    found: int
    """How many positions, tiles and seals are not as they should be."""
    differences: list[Difference]
    """Where, in order of position: neighbours as one, the first hundred of each kind."""

    @property
    def ok(self) -> bool:
        return self.found == 0


class _Findings:
    def __init__(self) -> None:
        self._kept: dict[Kind, list[Difference]] = {}
        self.count = 0

    def add(self, kind: Kind, first: int, last: int, detail: str, count: int = 1) -> None:
        self.count += count
        kept = self._kept.setdefault(kind, [])
        if kept and kept[-1].last == first - 1 and kept[-1].detail == detail:
            kept[-1] = Difference(kind, kept[-1].first, last, detail)
        elif len(kept) < MAX_DIFFERENCES:
            kept.append(Difference(kind, first, last, detail))

    def settled(self, proven: int) -> list[Difference]:
        """In order of position. Up to `proven` the envelopes are what was sealed, so there the hashes were changed."""
        found = [part for kept in self._kept.values() for item in kept for part in _split(item, proven)]
        return sorted(found, key=lambda item: (item.first, item.last, item.kind))


def _split(item: Difference, proven: int) -> Iterator[Difference]:
    if item.kind != "changed" or item.first > proven:
        yield item
        return
    yield Difference("tile", item.first, min(item.last, proven), _HASH)
    if item.last > proven:
        yield Difference("changed", proven + 1, item.last, item.detail)


class Verifier:
    """One verification of one workspace."""

    def __init__(
        self,
        database: Database,
        workspace_id: str,
        on_progress: Progress | None,
        expect: Expected | None,
    ) -> None:
        self._database = database
        self._workspace_id = workspace_id
        self._on_progress = on_progress
        self._expected = expect
        self._findings = _Findings()
        self._events = self._seals = 0
        self._envelopes = Log()
        # The tree from the stored hashes is the same one until the two differ.
        self._hashes = self._envelopes
        # The largest size at which a seal agreed with the envelopes, and with either tree; the seals since that do not.
        self._proven = self._agreed = 0
        self._disagreeing: list[int] = []

    async def run(self) -> Verification:
        ends = await self._ends()
        sealed = min(ends.sealed, ends.last)
        up_to = min(max(ends.sealed, self._expected.size if self._expected else 0), ends.last)
        while self._envelopes.size < sealed:
            await self._read(sealed, up_to, has_hashes=True)
        await self._compare_tiles(self._envelopes.edge(), self._hashes.edge())
        root = self._envelopes.root().hex()
        while self._envelopes.size < up_to:
            await self._read(up_to, up_to, has_hashes=False)
        self._tell_of_seals(are_to_blame=False)
        await self._compare_ends(ends)
        return Verification(
            self._workspace_id,
            self._events,
            self._seals,
            ends.sealed,
            root,
            max(ends.last - ends.sealed, 0),
            self._findings.count,
            self._findings.settled(self._proven),
        )

    def _transaction(self) -> AbstractAsyncContextManager[Tx]:
        return self._database.transaction(Scope(self._workspace_id))

    async def _read(self, limit: int, up_to: int, *, has_hashes: bool) -> None:
        """The next positions, no further than `limit`."""
        part = Range(self._envelopes.size, min(self._envelopes.size + _CHUNK_EVENTS, limit))
        async with self._transaction() as tx:
            rows = await read_leaves(tx, self._workspace_id, *part)
            tiles = await read_tiles(tx, self._workspace_id, _tiles_under(part) if has_hashes else [])
            seals = await seals_between(tx, self._workspace_id, *part)
        envelopes = self._hashes_of(rows, part)
        hashes = _hashes_in(tiles, part) if has_hashes else envelopes
        self._compare(part.start, envelopes, hashes)
        self._grow(part, envelopes, hashes, {seal.size: bytes.fromhex(seal.root) for seal in seals})
        full = self._envelopes.take_full()
        others = full if self._hashes is self._envelopes else self._hashes.take_full()
        if has_hashes:
            await self._compare_tiles(full, others)
        if self._on_progress is not None:
            self._on_progress(part.end, up_to)

    def _hashes_of(self, rows: Sequence[Row], part: Range) -> list[bytes]:
        """The hash of the envelope on each position."""
        self._events += len(rows)
        found = {position_of(row): hash_of_leaf(row) for row in rows}
        if len(rows) == len(found) == part.end - part.start:
            return list(found.values())
        for position, count in sorted(Counter(map(position_of, rows)).items()):
            if count > 1:
                self._findings.add("twice", position, position, _TWICE)
        for position in range(part.start + 1, part.end + 1):
            if position not in found:
                self._findings.add("missing", position, position, _MISSING)
        return [found.get(position, _NO_HASH) for position in range(part.start + 1, part.end + 1)]

    def _compare(self, start: int, envelopes: list[bytes], hashes: list[bytes]) -> None:
        if envelopes == hashes:
            return
        if self._hashes is self._envelopes:
            self._hashes = self._envelopes.copy()
        for position, (mine, other) in enumerate(zip(envelopes, hashes, strict=True), start + 1):
            if mine not in (other, _NO_HASH):
                self._findings.add("changed", position, position, _CHANGED)

    def _grow(self, part: Range, envelopes: list[bytes], hashes: list[bytes], roots: dict[int, bytes]) -> None:
        """Both trees, with a stop at every size whose root is known."""
        start, expected = part.start, self._expected.size if self._expected else 0
        for end in sorted(size for size in {*roots, expected, part.end} if part.start < size <= part.end):
            piece = slice(start - part.start, end - part.start)
            self._envelopes.extend(envelopes[piece])
            if self._hashes is not self._envelopes:
                self._hashes.extend(hashes[piece])
            if end in roots:
                self._check_seal(roots[end])
            if end == expected:
                self._check_expected(has_seal=end in roots)
            start = end

    def _check_seal(self, root: bytes) -> None:
        self._seals += 1
        size, is_of_envelopes = self._envelopes.size, self._envelopes.root() == root
        if is_of_envelopes:
            self._proven = size
        if not is_of_envelopes and self._hashes.root() != root:
            self._disagreeing.append(size)
            return
        # What comes before a root that is right was right, so the seals in between are to blame.
        self._tell_of_seals(are_to_blame=True)
        self._agreed = size

    def _tell_of_seals(self, *, are_to_blame: bool) -> None:
        sizes, self._disagreeing = self._disagreeing, []
        if are_to_blame:
            for size in sizes:
                self._findings.add("seal", size, size, _SEAL)
        elif sizes:
            which = f"size {sizes[0]} has" if len(sizes) == 1 else f"sizes {sizes[0]} to {sizes[-1]} have"
            detail = f"the seals of {which} another root: an event in here was changed, or the seals were"
            self._findings.add("seal", self._agreed + 1, sizes[0], detail, len(sizes))

    def _check_expected(self, *, has_seal: bool) -> None:
        assert self._expected is not None
        size = self._expected.size
        if self._envelopes.root() != self._expected.root:
            detail = "the root of the events up to here is not the one that was expected"
            self._findings.add("expected", 1, size, detail)
            return
        self._proven = size
        if not has_seal:
            self._findings.add("seal", size, size, _GONE)

    async def _compare_tiles(self, envelopes: Tiles, hashes: Tiles) -> None:
        """The levels above the leaves. What was made from either tree fits: the leaves were told of already."""
        wanted = [tile for tile in envelopes if tile.level > 0]
        if not wanted:
            return
        async with self._transaction() as tx:
            stored = await read_tiles(tx, self._workspace_id, wanted)
        for tile in wanted:
            allowed = zip(_split_hashes(envelopes[tile]), _split_hashes(hashes[tile]), strict=True)
            kept = _split_hashes(stored.get(tile, b"").ljust(len(envelopes[tile]), b"\x00"))
            for number, (pair, other) in enumerate(zip(allowed, kept, strict=False)):
                if other not in pair:
                    self._tell_of_tile(tile, number)

    def _tell_of_tile(self, tile: Tile, number: int) -> None:
        under = TILE_HASHES**tile.level
        first = (tile.number * TILE_HASHES + number) * under + 1
        detail = f"tile {tile.number} of level {tile.level} was changed"
        self._findings.add("tile", first, first + under - 1, detail)

    async def _ends(self) -> "_Ends":
        async with self._transaction() as tx:
            # The seal first: in the meantime events may be added, and then be sealed.
            sealed = (await last_seal(tx, self._workspace_id)).size
            rows = await tx.execute(_SQL["ends"], {"workspace_id": self._workspace_id})
            ((head, first, last),) = await rows.fetchall()
        return _Ends(head, first, last, sealed)

    async def _compare_ends(self, ends: "_Ends") -> None:
        add, end = self._findings.add, max(ends.head, ends.sealed)
        if self._expected is not None and self._expected.size > ends.last:
            size = self._expected.size
            add("expected", ends.last + 1, size, f"a root over {size} events was expected, and there are {ends.last}")
        if ends.first < 1:
            add("head", ends.first, 0, _OUTSIDE)
        if ends.last > ends.head:
            add("head", ends.head + 1, ends.last, f"{_OUTSIDE}: the head is at {ends.head}")
        if ends.last < end:
            add("missing", ends.last + 1, end, _MISSING, end - ends.last)
        for first, last in await self._gaps():
            add("missing", first, last, _MISSING, last - first + 1)

    async def _gaps(self) -> list[Row]:
        """Past what was read event by event."""
        values = {"workspace_id": self._workspace_id, "after": self._envelopes.size, "limit": MAX_DIFFERENCES}
        async with self._transaction() as tx:
            return await (await tx.execute(_SQL["gaps_after"], values)).fetchall()


class _Ends(NamedTuple):
    """Where the ledger begins and ends, by each of those who should know."""

    head: int
    first: int
    last: int
    sealed: int


def _tiles_under(part: Range) -> list[Tile]:
    return [Tile(0, number) for number in range(part.start // TILE_HASHES, -(-part.end // TILE_HASHES))]


def _hashes_in(tiles: Tiles, part: Range) -> list[bytes]:
    """The stored hash of each position; where there is none, one that nothing has."""
    whole = b"".join(tiles.get(tile, b"").ljust(TILE_HASHES * HASH_BYTES, b"\x00") for tile in _tiles_under(part))
    return _split_hashes(whole[: (part.end - part.start) * HASH_BYTES])


def _split_hashes(hashes: bytes) -> list[bytes]:
    return [hashes[start : start + HASH_BYTES] for start in range(0, len(hashes), HASH_BYTES)]
