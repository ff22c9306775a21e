"""Things that come one after the other, for `for` and for `async for`."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Generic, Optional, TypeVar

T = TypeVar("T")


class Feed(ABC, Iterator[T], AsyncIterator[T], Generic[T]):
    """An iterator over what another process sends, and an asynchronous one. It connects when the first thing is asked for.

    `close()`, or leaving its `with` block, ends the connection; another thread that waits then sees the end.
    """

    # A wait can last for long. The threads of the event loop are few, and for work that ends soon.
    _waiting: Optional[ThreadPoolExecutor] = None

    @abstractmethod
    def receive(self) -> Optional[T]:
        """Waits for the next thing. `None` at the end."""

    @abstractmethod
    def close(self) -> None:
        """Ends the connection. The iteration is over."""

    def __iter__(self) -> Feed[T]:
        return self

    def __next__(self) -> T:
        received = self.receive()
        if received is None:
            raise StopIteration
        return received

    def __aiter__(self) -> Feed[T]:
        return self

    async def __anext__(self) -> T:
        if self._waiting is None:
            self._waiting = ThreadPoolExecutor(1, "fullbore-feed")
        try:
            received = await asyncio.get_running_loop().run_in_executor(self._waiting, self.receive)
        except asyncio.CancelledError:
            # A connection may take a while to end, in which the event loop goes on.
            await asyncio.shield(asyncio.to_thread(self.close))
            raise
        if received is None:
            self._waiting = None
            raise StopAsyncIteration
        return received

    def __enter__(self) -> Feed[T]:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
