"""Merkle trees over a log that only grows, hashed as RFC 6962 does, and the proofs that RFC 9162 checks.

`verify_inclusion` and `verify_consistency` need nothing but a proof and a root that the caller trusts.

The hashes of a log are kept in tiles of 256, so that a proof reads a few tiles and not the whole log. Level 0 holds
the hashes of the leaves, level 1 the roots of the full tiles of level 0, and so on. A tile that is not full yet stands
at the right edge of its level and grows.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import NamedTuple

HASH_BYTES = 32
TILE_HASHES = 256
_TILE_HEIGHT = TILE_HASHES.bit_length() - 1
_TILE_BYTES = TILE_HASHES * HASH_BYTES

EMPTY_ROOT = sha256(b"").digest()


class MissingHashes(LookupError):
    """A tile that a hash is made from is not there, or is too short."""


class Range(NamedTuple):
    """The leaves from `start` up to, not including, `end`."""

    start: int
    end: int


class Tile(NamedTuple):
    level: int
    number: int


Tiles = Mapping[Tile, bytes]
"""Hashes one after the other, by their place."""


def leaf_hash(leaf: bytes) -> bytes:
    return sha256(b"\x00" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


# Checking a proof


def verify_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Whether `leaf` is number `index`, from 0, of the `size` leaves under `root` (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size or not _are_hashes(*path, root):
        return False
    place, last, found = index, size - 1, leaf_hash(leaf)
    for other in path:
        if last == 0:
            return False
        if place & 1 or place == last:
            found = node_hash(other, found)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            found = node_hash(found, other)
        place, last = place >> 1, last >> 1
    return last == 0 and found == root


def verify_consistency(old_size: int, new_size: int, old_root: bytes, new_root: bytes, path: Sequence[bytes]) -> bool:
    """Whether the log under `new_root` begins with all of the log under `old_root` (RFC 9162, 2.1.4.2)."""
    if not 0 < old_size <= new_size or not _are_hashes(*path, old_root, new_root):
        return False
    if old_size == new_size:
        return not path and old_root == new_root
    # Where the old tree is a subtree of the new one, its root is where the path starts, and is left out of it.
    steps = [old_root, *path] if old_size & (old_size - 1) == 0 else list(path)
    if not steps or not path:
        return False
    place, last = old_size - 1, new_size - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    old = new = steps[0]
    for other in steps[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            old, new = node_hash(other, old), node_hash(other, new)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            new = node_hash(new, other)
        place, last = place >> 1, last >> 1
    return last == 0 and old == old_root and new == new_root


def _are_hashes(*hashes: bytes) -> bool:
    return all(len(item) == HASH_BYTES for item in hashes)


# Making a proof: first which parts of the tree it names, then, from tiles, their hashes


def inclusion_ranges(index: int, size: int) -> list[Range]:
    """The parts whose hashes prove that leaf `index` is in a tree of `size`, from the leaf up."""
    if not 0 <= index < size:
        raise ValueError("the leaf is not in the tree")
    start, end, beside = 0, size, list[Range]()
    while end - start > 1:
        middle = start + _left_of(end - start)
        if index < middle:
            beside.append(Range(middle, end))
            end = middle
        else:
            beside.append(Range(start, middle))
            start = middle
    return beside[::-1]


def consistency_ranges(old_size: int, new_size: int) -> list[Range]:
    """The parts whose hashes prove that the tree of `new_size` begins with the one of `old_size`."""
    if not 0 < old_size <= new_size:
        raise ValueError("the older tree is not the smaller one")
    start, end, beside = 0, new_size, list[Range]()
    while old_size < end:
        middle = start + _left_of(end - start)
        if old_size <= middle:
            beside.append(Range(middle, end))
            end = middle
        else:
            beside.append(Range(start, middle))
            start = middle
    if start > 0:
        beside.append(Range(start, end))
    return beside[::-1]


def tiles_of(ranges: Iterable[Range]) -> set[Tile]:
    """The tiles that the hashes of these parts are made from."""
    return {_place(height, number)[0] for part in ranges for height, number in _subtrees(part)}


def hash_of(part: Range, tiles: Tiles) -> bytes:
    """The hash of a part that a proof names; of everything from 0 on, it is the root."""
    if part.start == part.end:
        return EMPTY_ROOT
    *lefts, found = (_subtree_hash(height, number, tiles) for height, number in _subtrees(part))
    for left in reversed(lefts):
        found = node_hash(left, found)
    return found


def _left_of(count: int) -> int:
    """How many of `count` leaves stand in the left half: the largest power of two that is less."""
    return 1 << (count - 1).bit_length() - 1


def _subtrees(part: Range) -> Iterator[tuple[int, int]]:
    """The full subtrees that make up a part, from left to right, by height and number."""
    start, end = part
    while start < end:
        height = (end - start).bit_length() - 1
        yield height, start >> height
        start += 1 << height


def _place(height: int, number: int) -> tuple[Tile, slice]:
    """The tile, and where in it stand the hashes that a full subtree is made from."""
    level, rest = divmod(height, _TILE_HEIGHT)
    tile, first = divmod(number << rest, TILE_HASHES)
    return Tile(level, tile), slice(first * HASH_BYTES, (first + (1 << rest)) * HASH_BYTES)


def _subtree_hash(height: int, number: int, tiles: Tiles) -> bytes:
    tile, where = _place(height, number)
    hashes = tiles.get(tile, b"")[where]
    if len(hashes) != where.stop - where.start:
        raise MissingHashes(f"tile {tile.number} of level {tile.level}")
    while len(hashes) > HASH_BYTES:
        steps = pairwise(range(0, len(hashes) + 1, 2 * HASH_BYTES))
        hashes = b"".join([sha256(b"\x01" + hashes[start:end]).digest() for start, end in steps])
    return hashes


# Growing


def edge_tiles(size: int) -> set[Tile]:
    """The tiles that are not full yet; what a tree of `size` needs to grow."""
    return tiles_of([Range(0, size)])


class Log:
    """A tree that grows. It holds its right edge, and the tiles that are new or have grown since they were taken."""

    def __init__(self, size: int = 0, tiles: Tiles | None = None) -> None:
        self.size = size
        # The roots of the full subtrees that the tree is made of, the largest first.
        self._peaks = [_subtree_hash(height, number, tiles or {}) for height, number in _subtrees(Range(0, size))]
        self._edge = {tile.level: bytearray(_edge_of(size, tile, tiles or {})) for tile in edge_tiles(size)}
        self._full: dict[Tile, bytes] = {}

    def extend(self, hashes: Iterable[bytes]) -> None:
        """Adds leaves by their hashes. A full subtree is hashed once, when its last leaf comes."""
        peaks = self._peaks
        for item in hashes:
            found, place, height = item, self.size, 0
            self._put(0, item)
            while place & 1:
                found = sha256(b"\x01" + peaks.pop() + found).digest()
                place >>= 1
                height += 1
                if height % _TILE_HEIGHT == 0:
                    self._put(height // _TILE_HEIGHT, found)
            peaks.append(found)
            self.size += 1

    def root(self) -> bytes:
        if not self._peaks:
            return EMPTY_ROOT
        *lefts, found = self._peaks
        for left in reversed(lefts):
            found = node_hash(left, found)
        return found

    def take_full(self) -> dict[Tile, bytes]:
        """The tiles that became full since the last call."""
        full, self._full = self._full, {}
        return full

    def edge(self) -> dict[Tile, bytes]:
        """The tiles that are not full yet."""
        return {Tile(level, self._number(level)): bytes(hashes) for level, hashes in self._edge.items() if hashes}

    def copy(self) -> "Log":
        """One that grows on its own from here; it has no full tiles to hand over."""
        return Log(self.size, self.edge())

    def _put(self, level: int, item: bytes) -> None:
        hashes = self._edge.get(level)
        if hashes is None:
            hashes = self._edge[level] = bytearray()
        hashes += item
        if len(hashes) == _TILE_BYTES:
            self._full[Tile(level, self._number(level))] = bytes(hashes)
            hashes.clear()

    def _number(self, level: int) -> int:
        return self.size >> _TILE_HEIGHT * (level + 1)


def _edge_of(size: int, tile: Tile, tiles: Tiles) -> bytes:
    """What of a tile belongs to a tree of `size`; the tile may have grown beyond it."""
    count = (size >> _TILE_HEIGHT * tile.level) % TILE_HASHES
    hashes = tiles.get(tile, b"")[: count * HASH_BYTES]
    if len(hashes) != count * HASH_BYTES:
        raise MissingHashes(f"tile {tile.number} of level {tile.level}")
    return hashes
