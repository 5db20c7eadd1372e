"""How many requests a user may make: a bucket that fills up over a minute, for each user who has made some lately."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from whence.errors import TooManyRequests
from whence.identity import Principal

WINDOW_SECONDS = 60
MAX_BUCKETS = 10_000
"""Users of whom it is known how many requests they made; of more, those who made none for the longest are forgotten."""


class Allowance(NamedTuple):
    """What is left to a user, for the headers of an answer (draft-ietf-httpapi-ratelimit-headers)."""

    limit: int
    left: float

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        full = math.ceil((self.limit - self.left) * WINDOW_SECONDS / self.limit)
        return [
            (b"ratelimit-policy", b'"user";q=%d;w=%d' % (self.limit, WINDOW_SECONDS)),
            (b"ratelimit", b'"user";r=%d;t=%d' % (max(0, int(self.left)), full)),
        ]


class Limiter:
    def __init__(self, limit: int | None, now: Callable[[], float] = time.monotonic) -> None:
        """`limit` requests a minute; None allows any number."""
        self._limit = limit
        self._now = now
        self._buckets: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()
        """How many requests were left to a user, and when that was so: who came last stands last."""

    def take(self, principal: Principal) -> Allowance | None:
        """One request. What is left, also where that was one too many; None where there is no limit."""
        if self._limit is None:
            return None
        who, now = (principal.workspace_id, principal.user_id), self._now()
        left, then = self._buckets.pop(who, (float(self._limit), now))
        left = min(float(self._limit), left + (now - then) * self._limit / WINDOW_SECONDS) - 1
        # What was refused costs nothing, so that who waits is served.
        self._buckets[who] = (left if left >= 0 else left + 1, now)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return Allowance(self._limit, left)

    @staticmethod
    def check(allowance: Allowance | None) -> None:
        if allowance is not None and allowance.left < 0:
            error = TooManyRequests(f"more than {allowance.limit:,} requests a minute")
            error.retry_after = max(1, math.ceil(-allowance.left * WINDOW_SECONDS / allowance.limit))
            raise error
