"""Rows of spectra that a station sends, by the table of docs/reference/rest.md."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

from . import _plots
from ._extras import extra
from ._feed import Feed
from ._http import Address, StationError, lost, refusal, unreachable
from ._time import datetime64

HEAD = struct.Struct("<4sIqddffffIIHHHH")
MOST_BYTES = 64 << 10
# Seconds within which a station takes a connection.
CONNECT = 10.0


@dataclass(frozen=True)
class Spectrum:
    """One row: the spectrum of a line at a moment."""

    time: Optional[np.datetime64]
    """The time of the first sample, in UTC."""
    frequency: NDArray[np.float64]
    """The frequency of each spectral channel in hertz; in cycles per sample if `in_hertz` is false."""
    power: NDArray[np.float32]
    """The power of each spectral channel in dB of full scale."""
    total: float
    """The mean square of the samples in dB of full scale."""
    mean: float
    """The mean of the samples, in levels."""
    states: NDArray[np.float32]
    """The fraction of the samples at each level, from the lowest to the highest; empty if a sample has more than 8 bits."""
    gaussian: NDArray[np.float32]
    """The fractions that a Gaussian signal has."""
    transforms: int
    """Fourier transforms in the row."""
    skipped: int
    """Written blocks that were passed over since the last row."""
    thread: int
    channel: int
    in_hertz: bool
    complex: bool

    def plot(self, axes: Any = None) -> Any:
        """Draws it with matplotlib, and returns the axes."""
        return _plots.spectrum(self, axes)

    @classmethod
    def read(cls, raw: bytes) -> Spectrum:
        """Reads a binary message."""
        if len(raw) < HEAD.size:
            raise StationError(f"a row of {len(raw)} bytes is too short")
        (magic, channels, ns, first, spacing, floor, step, total, mean, transforms, skipped, thread, channel,
         states, flags) = HEAD.unpack_from(raw)  # fmt: skip
        if magic != b"FBS1" or len(raw) != HEAD.size + 8 * states + channels:
            raise StationError("a message of the station is not a row of a spectrum; is the station newer than this package?")
        fractions = np.frombuffer(raw, "<f4", 2 * states, HEAD.size)
        power = np.frombuffer(raw, np.uint8, channels, HEAD.size + 8 * states)
        return cls(
            time=datetime64(ns), frequency=first + spacing * np.arange(channels),
            power=(floor + step * power.astype(np.float32)).astype(np.float32), total=total, mean=mean,
            states=fractions[:states], gaussian=fractions[states:], transforms=transforms, skipped=skipped,
            thread=thread, channel=channel, in_hertz=bool(flags & 1), complex=bool(flags & 2),
        )  # fmt: skip


def messages(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The messages of an answer: a kind, a length, the bytes."""
    at = 0
    while at < len(body):
        length = int.from_bytes(body[at + 1 : at + 5], "little")
        end = at + 5 + length
        if length > MOST_BYTES or end > len(body):
            raise StationError("the answer of the station ends within a message")
        yield body[at : at + 1], body[at + 5 : end]
        at = end


class Spectra(Feed[Spectrum]):
    """The live spectrum of a stream, row by row. Only while it is read, the recorder computes it."""

    def __init__(self, address: Address, path: str) -> None:
        self._address = address
        self._path = path
        self._connection: Any = None
        self._open = ExitStack()
        self._closed = False
        self.stream: Any = None
        """What the rows are: the message `stream`, once it has come."""
        self.header: Any = None
        """The newest header of a packet: the message `header`."""

    def receive(self) -> Optional[Spectrum]:
        """Waits for the next row. `None` at the end."""
        if self._closed:
            return None
        exceptions = extra("websockets.exceptions")
        try:
            if self._connection is None:
                self._connection = self._connect()
            while not self._closed:
                message = self._connection.recv()
                if isinstance(message, bytes):
                    return Spectrum.read(message)
                self._take(json.loads(message))
            # It was closed while it connected.
            self._open.close()
            return None
        except exceptions.InvalidStatus as error:
            raise refusal(error.response.status_code, bytes(error.response.body or b"")) from None
        except exceptions.ConnectionClosedOK:
            self.close()
            return None
        except (OSError, ValueError, exceptions.WebSocketException) as error:
            if self._closed:
                return None
            self.close()
            is_lost = isinstance(error, exceptions.ConnectionClosed)
            raise (lost(self._address) if is_lost else unreachable(self._address, error)) from error

    def _connect(self) -> Any:
        client = extra("websockets.sync.client")
        options = {"additional_headers": self._address.headers, "max_size": MOST_BYTES + HEAD.size, "compression": None}
        if self._address.unix is not None:
            uri = f"ws://station{self._path}"
            return self._open.enter_context(client.unix_connect(self._address.unix, uri=uri, **options))
        uri = str(self._address).replace("http", "ws", 1) + self._path
        if self._address.tls is not None:
            options["ssl"] = self._address.tls
        # A proxy of the environment is not for a station. Without the socket, websockets would take it.
        near = socket.create_connection((self._address.host, self._address.port), CONNECT)
        near.settimeout(None)
        return self._open.enter_context(client.connect(uri, sock=near, **options))

    def _take(self, told: Any) -> None:
        if told["event"] == "stream":
            self.stream = told
        elif told["event"] == "header":
            self.header = told
        elif told["event"] == "refused":
            self.close()
            raise StationError(told["error"], None, told.get("advice"))

    def close(self) -> None:
        """Ends the connection."""
        self._closed = True
        self._open.close()
