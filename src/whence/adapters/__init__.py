"""Hybrid memory for the agents of other frameworks, a module each, and none of them imported unless it is asked for.

All do the same around a run: what is remembered comes before the model as `whence.hybrid` says, the tool `memory` is
there, and the gateway is told of a run that ended well. What was recalled is in no history of theirs.

pydantic_ai     a capability of an agent
langgraph       a middleware for `create_agent` of LangChain, which makes a graph of LangGraph
openai_agents   a session and hooks of the OpenAI Agents SDK
"""
