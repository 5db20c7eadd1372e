"""Trees and proofs, held against RFC 6962 written down as it stands there."""

from functools import cache
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence import merkle
from whence.merkle import (
    EMPTY_ROOT,
    TILE_HASHES,
    Log,
    MissingHashes,
    Range,
    Tile,
    consistency_ranges,
    edge_tiles,
    hash_of,
    inclusion_ranges,
    leaf_hash,
    tiles_of,
    verify_consistency,
    verify_inclusion,
)

MAX_SIZE = 700


def leaf(index: int) -> bytes:
    return b"leaf %d" % index


# RFC 6962, 2.1 to 2.1.2. D[start:end] is the list of leaves; here leaf(start) to leaf(end - 1).


@cache
def mth(start: int, end: int) -> bytes:
    if start == end:
        return sha256(b"").digest()
    if end - start == 1:
        return sha256(b"\x00" + leaf(start)).digest()
    k = split(end - start)
    return sha256(b"\x01" + mth(start, start + k) + mth(start + k, end)).digest()


def split(n: int) -> int:
    k = 1
    while k * 2 < n:
        k *= 2
    return k


def path(m: int, start: int, end: int) -> list[bytes]:
    if end - start == 1:
        return []
    k = split(end - start)
    if m < k:
        return [*path(m, start, start + k), mth(start + k, end)]
    return [*path(m - k, start + k, end), mth(start, start + k)]


def subproof(m: int, start: int, end: int, is_whole: bool) -> list[bytes]:
    if m == end - start:
        return [] if is_whole else [mth(start, end)]
    k = split(end - start)
    if m <= k:
        return [*subproof(m, start, start + k, is_whole), mth(start + k, end)]
    return [*subproof(m - k, start + k, end, False), mth(start, start + k)]


def grown(size: int, *stops: int) -> Log:
    """A log of `size` that was taken up again at each of the stops, as from a database."""
    kept: dict[Tile, bytes] = {}
    log = Log()
    for stop in (*sorted(stops), size):
        log.extend(leaf_hash(leaf(index)) for index in range(log.size, stop))
        kept |= log.take_full() | log.edge()
        log = Log(log.size, {tile: kept[tile] for tile in edge_tiles(log.size)})
    return log


@cache
def tiles(size: int) -> dict[Tile, bytes]:
    log = Log()
    log.extend(leaf_hash(leaf(index)) for index in range(size))
    return log.take_full() | log.edge()


sizes = st.integers(1, MAX_SIZE)


@st.composite
def places(draw: st.DrawFn) -> tuple[int, int]:
    """An index and a size that holds it."""
    size = draw(sizes)
    return draw(st.integers(0, size - 1)), size


@st.composite
def pairs(draw: st.DrawFn) -> tuple[int, int]:
    """An older and a newer size."""
    new = draw(sizes)
    return draw(st.integers(1, new)), new


def test_the_known_answers_of_certificate_transparency() -> None:
    """The leaves and roots that implementations of RFC 6962 share as test vectors."""
    leaves = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
    roots = [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ]
    log = Log()
    for data, root in zip(leaves, roots, strict=True):
        log.extend([leaf_hash(bytes.fromhex(data))])
        assert log.root().hex() == root
    assert EMPTY_ROOT.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" == Log().root().hex()


@given(sizes, st.lists(st.integers(0, MAX_SIZE), max_size=4))
def test_a_log_has_the_root_of_the_rfc_wherever_it_was_taken_up_again(size: int, stops: list[int]) -> None:
    log = grown(size, *(stop for stop in stops if stop <= size))
    assert log.root() == mth(0, size) == hash_of(Range(0, size), tiles(size))


@given(places())
def test_an_inclusion_path_is_that_of_the_rfc_and_holds(place: tuple[int, int]) -> None:
    index, size = place
    found = [hash_of(part, tiles(size)) for part in inclusion_ranges(index, size)]
    assert found == path(index, 0, size)
    assert verify_inclusion(leaf(index), index, size, found, mth(0, size))


@given(pairs())
def test_a_consistency_path_is_that_of_the_rfc_and_holds(pair: tuple[int, int]) -> None:
    old, new = pair
    found = [hash_of(part, tiles(new)) for part in consistency_ranges(old, new)]
    assert found == subproof(old, 0, new, True)
    assert verify_consistency(old, new, mth(0, old), mth(0, new), found)


@given(places(), st.data())
def test_no_other_claim_holds_with_the_same_inclusion_path(place: tuple[int, int], data: st.DataObject) -> None:
    index, size = place
    proof, root = path(index, 0, size), mth(0, size)
    other_index, other_size = data.draw(places())
    if other_index != index:
        assert not verify_inclusion(leaf(index), other_index, size, proof, root)
        assert not verify_inclusion(leaf(other_index), index, size, proof, root)
    assert not verify_inclusion(leaf(index), index, size, proof, bytes(32))
    assert not verify_inclusion(leaf(index), index, size, [*proof, bytes(32)], root)
    assert not verify_inclusion(leaf(index), index, size, [*proof, b""], root)
    assert not verify_inclusion(leaf(index), size, size, proof, root)
    assert not verify_inclusion(leaf(index), -1, size, proof, root)
    for damaged in damages(proof, data):
        assert not verify_inclusion(leaf(index), index, size, damaged, root)
    # A path is as long as the size says, so another size may share it; under another root it must not hold.
    if other_size != size and index < other_size:
        assert not verify_inclusion(leaf(index), index, other_size, proof, mth(0, other_size))


@given(pairs(), st.data())
def test_no_other_claim_holds_with_the_same_consistency_path(pair: tuple[int, int], data: st.DataObject) -> None:
    old, new = pair
    proof, old_root, new_root = subproof(old, 0, new, True), mth(0, old), mth(0, new)
    assert not verify_consistency(old, new, bytes(32), new_root, proof)
    assert not verify_consistency(old, new, old_root, bytes(32), proof)
    assert not verify_consistency(old, new, old_root, new_root, [*proof, bytes(32)])
    assert not verify_consistency(0, new, old_root, new_root, proof)
    assert not verify_consistency(new + 1, new, old_root, new_root, proof)
    for damaged in damages(proof, data):
        assert not verify_consistency(old, new, old_root, new_root, damaged)


def damages(proof: list[bytes], data: st.DataObject) -> list[list[bytes]]:
    if not proof:
        return []
    place = data.draw(st.integers(0, len(proof) - 1))
    flipped = bytes([proof[place][0] ^ 1]) + proof[place][1:]
    return [
        proof[:place] + proof[place + 1 :],
        [*proof[:place], flipped, *proof[place + 1 :]],
        [*proof[:place], proof[place][:-1], *proof[place + 1 :]],
    ]


@given(pairs())
def test_the_tiles_of_a_larger_log_prove_the_same(pair: tuple[int, int]) -> None:
    """A tile grows while a proof is made; what was in it stays where it was."""
    old, new = pair
    assert hash_of(Range(0, old), tiles(new)) == mth(0, old)
    assert Log(old, tiles(new)).root() == mth(0, old)


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 66_000])
def test_levels_above_the_first_hold(size: int) -> None:
    root = tiles(size)
    assert {tile.level for tile in root} == ({0, 1} if size < 65_536 else {0, 1, 2})
    log = Log(size, {tile: root[tile] for tile in edge_tiles(size)})
    assert log.root() == hash_of(Range(0, size), root) == mth(0, size)
    for index in (0, 255, 256, 40_000, size - 1):
        ranges = inclusion_ranges(index, size)
        assert len(tiles_of(ranges)) <= 4, "a proof reads a few tiles"
        assert verify_inclusion(leaf(index), index, size, [hash_of(part, root) for part in ranges], log.root())
    for old in (1, 256, 65_000, size):
        proof = [hash_of(part, root) for part in consistency_ranges(old, size)]
        assert verify_consistency(old, size, mth(0, old), log.root(), proof)


def test_a_copy_grows_on_its_own() -> None:
    log = grown(300)
    other = log.copy()
    other.extend([bytes(32)])
    log.extend([leaf_hash(leaf(300))])
    assert log.root() == mth(0, 301) != other.root()


def test_tiles_that_are_missing_or_short_are_told() -> None:
    for broken in ({}, {**tiles(300), Tile(0, 1): tiles(300)[Tile(0, 1)][:-32]}):
        with pytest.raises(MissingHashes):
            Log(300, broken)
        with pytest.raises(MissingHashes):
            hash_of(Range(0, 300), broken)
    with pytest.raises(ValueError, match="not in the tree"):
        inclusion_ranges(3, 3)
    with pytest.raises(ValueError, match="not the smaller one"):
        consistency_ranges(4, 3)


def test_the_shape_of_tiles() -> None:
    kept = tiles(TILE_HASHES + 1)
    assert {tile: len(hashes) for tile, hashes in kept.items()} == {
        Tile(0, 0): 8192,
        Tile(0, 1): 32,
        Tile(1, 0): 32,
    }
    assert kept[Tile(1, 0)] == mth(0, TILE_HASHES)
    assert merkle.HASH_BYTES == 32
