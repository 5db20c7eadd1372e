"""Where the boxes of a picture stand and where its lines run: columns from left to right, after Sugiyama.

Each part that hangs together is laid out by itself, and the parts stand beneath each other. What has no links fills
rows at the bottom.
"""

import itertools
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

MAX_LANE_COLUMNS = 24
ORDERING_SWEEPS = 9
"""Odd: the last sweep runs from causes to effects and leaves effects beside their causes."""
SETTLING_SWEEPS = 6


class Grid(NamedTuple):
    """Sizes in pixels."""

    box_width: float = 252
    box_height: float = 74
    column_gap: float = 84
    row_gap: float = 20
    lane_gap: float = 12
    part_gap: float = 28
    loose_columns: int = 4
    """How many boxes without links stand side by side, at least."""


GRID = Grid()


class Link(NamedTuple):
    source: str
    target: str
    kind: str
    """Lines of one kind to one target share their way."""
    after: bool | None
    """Whether the source belongs to the right of the target, to its left, or wherever it falls."""
    weight: int = 1
    """How hard the line pulls its ends to one height."""


class Point(NamedTuple):
    column: int
    y: float


@dataclass(frozen=True)
class Layout:
    places: dict[str, Point]
    """The column and the middle of each box."""
    routes: list[list[Point]]
    """Of each link, from its source to its target: the ends, and between them the columns that the line passes."""
    columns: int
    height: float


Slot = tuple[str, ...]
"""What takes room in a column: a box by its id, or the way of a line by its target, kind and column."""


def lay_out(boxes: Sequence[str], links: Sequence[Link]) -> Layout:
    """The order of the boxes decides wherever the links leave a choice."""
    places: dict[str, Point] = {}
    ways: dict[Slot, Point] = {}
    height = 0.0
    parts = _parts(boxes, links)
    for part in parts:
        if len(part) > 1:
            graph = _Graph(part, [link for link in links if link.source in part])
            bottom = graph.place(height)
            places |= {slot[0]: point for slot, point in graph.points.items() if len(slot) == 1}
            ways |= graph.points
            height = bottom + GRID.part_gap
    columns = max((point.column + 1 for point in places.values()), default=0)
    loose = [next(iter(part)) for part in parts if len(part) == 1]
    columns, height = _place_loose(loose, places, columns, height)
    return Layout(places, [_route(link, places, ways) for link in links], columns, max(0.0, height - GRID.part_gap))


def _place_loose(loose: list[str], places: dict[str, Point], columns: int, top: float) -> tuple[int, float]:
    if not loose:
        return columns, top
    across = max(columns, GRID.loose_columns)
    step = GRID.box_height + GRID.row_gap
    for index, box in enumerate(loose):
        places[box] = Point(index % across, top + GRID.box_height / 2 + index // across * step)
    rows = -(-len(loose) // across)
    return max(columns, min(across, len(loose))), top + rows * step - GRID.row_gap + GRID.part_gap


def _parts(boxes: Sequence[str], links: Sequence[Link]) -> list[dict[str, None]]:
    """What hangs together, each part in the order of the boxes."""
    near: dict[str, list[str]] = defaultdict(list)
    for link in links:
        near[link.source].append(link.target)
        near[link.target].append(link.source)
    part_of: dict[str, int] = {}
    for box in boxes:
        waiting = [box] if box not in part_of else []
        while waiting:
            reached = waiting.pop()
            if reached not in part_of:
                part_of[reached] = part_of.get(box, len(part_of))
                waiting.extend(near[reached])
    parts: dict[int, dict[str, None]] = defaultdict(dict)
    for box in boxes:
        parts[part_of[box]][box] = None
    return list(parts.values())


def _columns(boxes: Iterable[str], links: Sequence[Link]) -> dict[str, int]:
    """The longest way from the left; where links run in a circle, the first box in it counts as its beginning."""
    before, after = _neighbours(links)
    columns: dict[str, int] = {}
    waiting = dict.fromkeys(boxes)
    unplaced = {box: len(before[box]) for box in waiting}
    ready = deque(box for box in waiting if not unplaced[box])
    while waiting:
        box = ready.popleft() if ready else min(waiting, key=unplaced.__getitem__)
        del waiting[box]
        columns[box] = 1 + max((columns[other] for other in before[box] if other in columns), default=-1)
        for other in after[box]:
            unplaced[other] -= 1
            if not unplaced[other] and other in waiting:
                ready.append(other)
    _close_up(columns, before, after)
    return columns


def _neighbours(links: Sequence[Link]) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    before: dict[str, set[str]] = defaultdict(set)
    after: dict[str, set[str]] = defaultdict(set)
    for link in links:
        if link.after is not None and link.source != link.target:
            left, right = (link.target, link.source) if link.after else (link.source, link.target)
            before[right].add(left)
            after[left].add(right)
    return before, after


def _close_up(columns: dict[str, int], before: dict[str, set[str]], after: dict[str, set[str]]) -> None:
    """What has nothing to its left stands beside the first that it leads to, not at the far left."""
    for box in columns:
        if after[box] and not before[box]:
            columns[box] = max(0, min(columns[other] for other in after[box]) - 1)


class _Graph:
    """One part: its boxes and the ways of its long lines, column by column."""

    def __init__(self, boxes: Iterable[str], links: Sequence[Link]) -> None:
        column_of = _columns(boxes, links)
        first = min(column_of.values())
        self._slots: list[list[Slot]] = [[] for _ in range(max(column_of.values()) - first + 1)]
        self._left: dict[Slot, dict[Slot, int]] = defaultdict(dict)
        self._right: dict[Slot, dict[Slot, int]] = defaultdict(dict)
        self._y: dict[Slot, float] = {}
        self.points: dict[Slot, Point] = {}
        self._columns = {box: column - first for box, column in column_of.items()}
        for box in boxes:
            self._add((box,), self._columns[box])
        for link in links:
            self._join(link)

    def place(self, top: float) -> float:
        """Orders the columns and gives every slot its height; returns the bottom."""
        for slots in self._slots:
            self._settle(slots, dict.fromkeys(slots, 0.0))
        for sweep in range(ORDERING_SWEEPS):
            self._sweep(sweep % 2 == 0)
        for sweep in range(SETTLING_SWEEPS):
            self._relax(sweep % 2 == 0)
        highest = min(self._y[slot] - _height(slot) / 2 for slots in self._slots for slot in slots)
        for column, slots in enumerate(self._slots):
            for slot in slots:
                self.points[slot] = Point(column, self._y[slot] - highest + top)
        return max(point.y + _height(slot) / 2 for slot, point in self.points.items())

    def _add(self, slot: Slot, column: int) -> None:
        self._slots[column].append(slot)
        self._y[slot] = 0.0

    def _join(self, link: Link) -> None:
        columns = self._columns[link.source], self._columns[link.target]
        way: list[Slot] = [(link.source,)]
        for column in _between(*columns):
            slot = _way(link, column)
            if slot not in self._y:
                self._add(slot, column)
            way.append(slot)
        way.append((link.target,))
        if columns[0] == columns[1] or (len(way) == 2 and abs(columns[0] - columns[1]) > 1):
            return
        if columns[0] > columns[1]:
            way.reverse()
        for left, right in itertools.pairwise(way):
            weight = max(link.weight, self._right[left].get(right, 0))
            self._right[left][right] = self._left[right][left] = weight

    def _sweep(self, rightwards: bool) -> None:
        """Each slot goes to the middle of what it is joined to in the column before, which orders the column.

        Only the strongest links count: an agent that everything mentions would draw families apart.
        """
        side = self._left if rightwards else self._right
        for slots in self._slots if rightwards else reversed(self._slots):
            wished = {slot: self._middle(self._strongest(slot, side[slot]), slot) for slot in slots}
            slots.sort(key=lambda slot: wished[slot])
            self._settle(slots, wished)

    def _relax(self, rightwards: bool) -> None:
        """The order stays, and each slot goes to the middle of all that it is joined to."""
        for slots in self._slots if rightwards else reversed(self._slots):
            self._settle(slots, {slot: self._middle(self._left[slot] | self._right[slot], slot) for slot in slots})

    def _strongest(self, slot: Slot, pulls: dict[Slot, int]) -> dict[Slot, int]:
        most = max((*self._left[slot].values(), *self._right[slot].values()), default=0)
        return {other: pull for other, pull in pulls.items() if pull == most}

    def _middle(self, pulls: dict[Slot, int], slot: Slot) -> float:
        if not pulls:
            return self._y[slot]
        return sum(self._y[other] * weight for other, weight in pulls.items()) / sum(pulls.values())

    def _settle(self, slots: list[Slot], wished: dict[Slot, float]) -> None:
        """As near to the wishes as the room that each slot takes allows: least squares, by pooling neighbours."""
        offsets: list[float] = []
        pools: list[tuple[float, int]] = []
        offset = 0.0
        for index, slot in enumerate(slots):
            offset += (_height(slots[index - 1]) + _height(slot)) / 2 if index else 0.0
            offsets.append(offset)
            total, count = wished[slot] - offset, 1
            while pools and pools[-1][0] / pools[-1][1] > total / count:
                total, count = total + pools[-1][0], count + pools.pop()[1]
            pools.append((total, count))
        means = [total / count for total, count in pools for _ in range(count)]
        for slot, mean, offset in zip(slots, means, offsets, strict=True):
            self._y[slot] = mean + offset


def _height(slot: Slot) -> float:
    return GRID.box_height + GRID.row_gap if len(slot) == 1 else GRID.lane_gap


def _between(source: int, target: int) -> range:
    """A line over more columns than this has no way of its own: the ways would be more than the boxes."""
    if abs(source - target) > MAX_LANE_COLUMNS:
        return range(0)
    return range(source + 1, target) if source < target else range(source - 1, target, -1)


def _way(link: Link, column: int) -> Slot:
    return (link.target, link.kind, str(column))


def _route(link: Link, places: dict[str, Point], ways: dict[Slot, Point]) -> list[Point]:
    source, target = places[link.source], places[link.target]
    return [source, *(ways[_way(link, column)] for column in _between(source.column, target.column)), target]
