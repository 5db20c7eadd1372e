"""A clock that a test moves."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass
class Time:
    now: datetime = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_by(self, **more: float) -> None:
        self.now += timedelta(**more)
