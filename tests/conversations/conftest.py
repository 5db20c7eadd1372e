"""A Whence whose time a test moves."""

from lifecycle.conftest import Time, time, timed

__all__ = ["Time", "time", "timed"]
