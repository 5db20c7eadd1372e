"""Memory on the agent's side: curated files that are always there, and a memory gateway beside them.

The two layers know nothing of each other, and this package knows nothing of the server.

config               the section `memory` of a configuration
curated  entries     `MEMORY.md` and `USER.md` / what stands in them
tool                 the tool `memory`, by which a model edits them
gateway  client      what is recalled before a run and told after it / over HTTP
reference            recalled text as data that cannot pass for anything else
audit                what became of calls to the gateway
context  run         what a model is given / both layers around a run
"""

from whence.hybrid.audit import AuditEvent, AuditSink
from whence.hybrid.client import GatewayError
from whence.hybrid.config import GatewayConfig, MemoryConfig, Secret
from whence.hybrid.curated import CuratedMemory, NotCurated, Snapshot
from whence.hybrid.gateway import MemoryGateway
from whence.hybrid.run import HybridMemory, Run
from whence.hybrid.tool import MemoryTool

__all__ = [
    "AuditEvent",
    "AuditSink",
    "CuratedMemory",
    "GatewayConfig",
    "GatewayError",
    "HybridMemory",
    "MemoryConfig",
    "MemoryGateway",
    "MemoryTool",
    "NotCurated",
    "Run",
    "Secret",
    "Snapshot",
]
