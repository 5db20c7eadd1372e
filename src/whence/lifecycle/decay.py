"""Decay: how present a memory still is. What is used stays longer and counts for more; a procedure does not fade.

Nothing is removed because it faded: that is for policies (see policies.py). What is read here is for who ranks.
"""

import math
from datetime import datetime, timedelta

from whence.wire import Kind, StoredMemory, Temperature

STABILITY_HOURS = 168
"""After so long without a use, a memory that was never used has e times less recency."""
GROWTH_HOURS = 24
"""How much longer that is for each e-fold of uses."""
USE_WEIGHT = 0.2
HOT_STRENGTH = 0.7
WARM_STRENGTH = 0.3


def stability(accesses: int) -> float:
    """In hours."""
    return STABILITY_HOURS * (1 + GROWTH_HOURS / STABILITY_HOURS * math.log1p(accesses))


def recency(age: timedelta, accesses: int) -> float:
    """From 1, just used, towards 0. A clock that is behind makes nothing more recent than now."""
    hours = max(age.total_seconds(), 0.0) / 3_600
    return math.exp(-hours / stability(accesses))


def grown_importance(importance: float, uses: int) -> float:
    """Importance grows with use: each e-fold of uses takes a part of what it lacks of 1."""
    return 1 - (1 - importance) / (1 + USE_WEIGHT * math.log1p(uses))


def strength(kind: Kind, importance: float, age: timedelta, accesses: int, told: int = 1) -> float:
    """From 0 to 1: recency, which fades the less the more important it is."""
    if kind == "procedural":
        return 1.0
    return recency(age, accesses) ** (1 - grown_importance(importance, accesses + told - 1))


def strength_of(memory: StoredMemory, now: datetime) -> float:
    """Since it was last recalled, else since it was recorded."""
    age = now - (memory.accessed_at or memory.recorded_at)
    return strength(memory.kind, memory.importance, age, memory.access_count, memory.told_count)


def temperature(strength: float) -> Temperature:
    return "hot" if strength >= HOT_STRENGTH else "warm" if strength >= WARM_STRENGTH else "cold"
