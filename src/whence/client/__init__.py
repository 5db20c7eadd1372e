"""The client: Whence from Python, over HTTP or inside the caller's own process.

calls          a call as a value: what is sent, what comes back, whether it may be sent again
fields         the keyword arguments of verbs that take many
asynchronous   `AsyncWhence`, written by hand
synchronous    `Whence`, made from it by `make sync`
embedded       a Whence that lives in a thread of this process
"""

from whence.client.asynchronous import AsyncWhence
from whence.client.synchronous import Whence

__all__ = ["AsyncWhence", "Whence"]
