"""Whence: memory for AI agents that knows where it came from."""

__version__ = "0.1.0"
