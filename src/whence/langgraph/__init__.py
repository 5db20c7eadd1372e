"""LangGraph on Whence: a store whose items are memories. Needs the extra `langgraph`."""

from whence.langgraph.store import WhenceStore

__all__ = ["WhenceStore"]
