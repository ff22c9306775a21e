"""A detector of ophyd-async for a PandA that fullbore records: `pip install 'fullbore[bluesky]'`.

    from fullbore.ophyd import PandaDetector

    panda = PandaDetector("172.23.252.201", path_provider, name="panda")

A plan prepares a number of samples and waits for them. The documents tell how many samples readers can see in the HDF5
file. A plan fails if a sample is lost. Leaving a plan, in any way, disarms the PandA and seals the account in the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np

from ._extras import extra

# Tells which extra brings it.
extra("ophyd_async")

from bluesky.protocols import StreamAsset
from event_model import DataKey
from ophyd_async.core import (
    AsyncStatus,
    DetectorAcquireLogic,
    DetectorDataLogic,
    DetectorTriggerLogic,
    PathProvider,
    SignalDict,
    SignalR,
    StandardDetector,
    StreamableDataProvider,
    StreamResourceDataProvider,
    StreamResourceInfo,
    TriggerInfo,
    WatchableAsyncStatus,
    WatcherUpdate,
    soft_signal_r_and_setter,
)

from ._panda import AcquisitionError, Acquisitions, Column, captured

__all__ = ["AcquisitionError", "PandaDetector"]

# Seconds: a tick of the clock of a PandA, 125 MHz.
TICK = 8e-9


class PandaDetector(StandardDetector):
    """A PandA whose samples fullbore records into an HDF5 file, one for each time that it is staged.

    `endpoint` is the address of the PandA, or `panda://…`. Samples are scaled, or with `raw` the integers as captured.
    `flush` is the time after which readers see samples, `rate` the expected samples per second; `compression` and
    `nexus` are those of `hdf5:`. Further options are those of `fullbore record`, such as `buffer="256MiB"`.

    Each event is `collections_per_event` samples. `trigger` takes them as one acquisition, which the PandA ends itself.
    The blocks of the PandA determine when it samples: a plan sets them, and loads a table or a sequence.
    """

    def __init__(
        self,
        endpoint: str,
        path_provider: PathProvider,
        *,
        raw: bool = False,
        flush: str = "200ms",
        rate: Optional[float] = None,
        compression: Optional[str] = None,
        nexus: Optional[str] = None,
        name: str = "",
        **options: Any,
    ) -> None:
        self.samples, set_samples = soft_signal_r_and_setter(int)
        self.headline, set_headline = soft_signal_r_and_setter(str)
        options = {"reconnect": "5s", **options}
        self._acquisitions = Acquisitions(endpoint, set_samples, set_headline, options)
        parameters = {
            "scaled": "false" if raw else None,
            "flush": flush,
            "rate": rate,
            "compression": compression,
            "nexus": nexus,
        }
        self.add_detector_logics(
            _Trigger(self._acquisitions),
            _Acquire(self._acquisitions),
            _Data(self._acquisitions, path_provider, self.samples, raw, parameters),
        )
        super().__init__(name=name)

    @AsyncStatus.wrap
    async def prepare(self, value: TriggerInfo) -> None:
        """Prepares a number of samples. With external triggers, the PandA is armed when this is done."""
        self._acquisitions.is_preparing = True
        try:
            await super().prepare(value)
        finally:
            self._acquisitions.is_preparing = False

    @AsyncStatus.wrap
    async def kickoff(self) -> None:
        """Arms the PandA, unless `prepare` has. Samples that came since then count."""
        await super().kickoff()
        self._acquisitions.release()

    @WatchableAsyncStatus.wrap
    async def trigger(self) -> AsyncIterator[WatcherUpdate[int]]:
        """Takes the samples of one event as one acquisition."""
        async for update in _unless_lost(self._acquisitions, super().trigger()):
            yield update

    @WatchableAsyncStatus.wrap
    async def complete(self) -> AsyncIterator[WatcherUpdate[int]]:
        """Waits until readers can see the samples of the last `kickoff`. Fails at once if a sample is lost."""
        async for update in _unless_lost(self._acquisitions, super().complete()):
            yield update


async def _unless_lost(
    acquisitions: Acquisitions, status: WatchableAsyncStatus[int]
) -> AsyncIterator[WatcherUpdate[int]]:
    """The updates of a status until it is done. Raises the error of the acquisition, once it has one."""
    updates: asyncio.Queue[WatcherUpdate[int]] = asyncio.Queue()
    status.watch(lambda *_, **update: updates.put_nowait(WatcherUpdate(**update)))
    failed = asyncio.create_task(acquisitions.failed.wait())
    try:
        while not status.done:
            update = asyncio.create_task(updates.get())
            await asyncio.wait({update, status.task, failed}, return_when=asyncio.FIRST_COMPLETED)
            if update.done():
                yield update.result()
            update.cancel()
            if failed.done():
                acquisitions.check()
        await status
    finally:
        failed.cancel()
        # Its error, if it has one too, is not the first.
        status.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        status.task.cancel()


class _Trigger(DetectorTriggerLogic):
    """The number of samples of an acquisition. The blocks of the PandA determine when it takes them."""

    def __init__(self, acquisitions: Acquisitions) -> None:
        self._acquisitions = acquisitions

    def get_deadtime(self, config_values: SignalDict) -> float:
        return TICK

    async def prepare_internal(self, num: int, livetime: float, deadtime: float) -> None:
        if livetime or deadtime:
            raise ValueError("the blocks of the PandA determine when it samples: set them, and leave livetime and deadtime out")
        await self._prepare(num)

    async def prepare_edge(self, num: int, livetime: float) -> None:
        await self.prepare_internal(num, livetime, 0.0)

    async def prepare_level(self, num: int) -> None:
        await self._prepare(num)

    async def _prepare(self, num: int) -> None:
        await self._acquisitions.end()
        self._acquisitions.release()
        self._acquisitions.wanted = num


class _Acquire(DetectorAcquireLogic):
    """Arms and disarms."""

    def __init__(self, acquisitions: Acquisitions) -> None:
        self._acquisitions = acquisitions

    async def ensure_ready(self) -> None:
        await self._acquisitions.end()

    async def start_acquiring(self) -> None:
        await self._acquisitions.begin()

    async def wait_for_idle(self) -> None:
        await self._acquisitions.end()
        self._acquisitions.check()

    async def ensure_stopped(self) -> None:
        await self._acquisitions.end()
        self._acquisitions.check_untold()


class _Data(DetectorDataLogic):
    """The file, and the documents about it."""

    def __init__(
        self,
        acquisitions: Acquisitions,
        path_provider: PathProvider,
        samples: SignalR[int],
        raw: bool,
        parameters: dict[str, Any],
    ) -> None:
        self._acquisitions = acquisitions
        self._path_provider = path_provider
        self._samples = samples
        self._raw = raw
        self._parameters = parameters

    async def prepare_unbounded(self, datakey_name: str) -> StreamableDataProvider:
        await self._acquisitions.end()
        place = self._path_provider(datakey_name)
        directory = Path(place.directory_path)
        await asyncio.to_thread(_make, directory, place.create_dir_depth)
        columns = await asyncio.to_thread(captured, self._acquisitions.endpoint, self._raw)
        self._acquisitions.open(directory / f"{place.filename}.h5", **self._parameters)
        uri = f"{place.directory_uri}{place.filename}.h5"
        return _Rows(self._acquisitions, self._samples, uri, datakey_name, columns)

    async def stop(self) -> None:
        await self._acquisitions.end()


class _Rows(StreamableDataProvider):
    """The columns of the file, as documents name them: `panda-COUNTER1-OUT-Mean`, since a key has no dots."""

    def __init__(
        self, acquisitions: Acquisitions, samples: SignalR[int], uri: str, datakey_name: str, columns: Sequence[Column]
    ) -> None:
        self.collections_written_signal = samples
        self._acquisitions = acquisitions
        self._uri = uri
        self._columns = {f"{datakey_name}-{column.name.replace('.', '-')}": column for column in columns}
        self._resources: Optional[StreamResourceDataProvider] = None

    async def make_datakeys(self, collections_per_event: int) -> dict[str, DataKey]:
        def describe(column: Column) -> DataKey:
            told = DataKey(
                source=self._uri,
                shape=[collections_per_event],
                dtype="array" if collections_per_event > 1 else "number",
                dtype_numpy=column.dtype,
                external="STREAM:",
            )
            return told if column.units is None else {**told, "units": column.units}

        return {key: describe(column) for key, column in self._columns.items()}

    async def make_stream_docs(self, collections_written: int, collections_per_event: int) -> AsyncIterator[StreamAsset]:
        if self._resources is None:
            if collections_written < collections_per_event:
                return
            chunks = await asyncio.to_thread(self._chunks)
            self._resources = StreamResourceDataProvider(
                uri=self._uri,
                resources=[
                    StreamResourceInfo(
                        data_key=key,
                        shape=(),
                        chunk_shape=chunks[column.name],
                        dtype_numpy="",
                        parameters={"dataset": f"/{column.name}", "swmr": True},
                    )
                    for key, column in self._columns.items()
                ],
                mimetype="application/x-hdf5",
                collections_written_signal=self.collections_written_signal,
            )
        async for document in self._resources.make_stream_docs(collections_written, collections_per_event):
            yield document

    def _chunks(self) -> dict[str, tuple[int, ...]]:
        """The HDF5 chunk of each column, from the file, whose columns must be those that were announced."""
        chunks = {}
        with extra("h5py").File(self._acquisitions.path, "r", swmr=True) as file:
            for column in self._columns.values():
                there = file.get(column.name)
                if there is None or there.dtype != np.dtype(column.dtype):
                    found = "is not there" if there is None else f"is of type {there.dtype}"
                    raise AcquisitionError(
                        f"{self._acquisitions.path}: {column.name} {found}, unlike what the PandA was set to capture when"
                        " the plan began\n  change what it captures before a plan stages it"
                    )
                chunks[column.name] = tuple(there.chunks)
        return chunks


def _make(directory: Path, depth: int) -> None:
    """Makes the directories that a path provider allows to make: those after component `depth`, or none with 0."""
    parts = directory.parts
    least = Path(*parts[: 1 + depth if depth > 0 else len(parts) + depth])
    if not least.is_dir():
        raise FileNotFoundError(f"{least} is not there: make it, or give the path provider a create_dir_depth")
    directory.mkdir(parents=True, exist_ok=True)
