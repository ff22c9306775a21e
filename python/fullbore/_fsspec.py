"""Streams as files of fsspec: `fullbore://PATH/SESSION_SCAN/STREAM`, with the bytes that `fullbore cat` prints."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

from . import _native
from ._scan import open as open_scan
from ._scan import open_store
from ._stream import Stream


class StreamFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """A store as directories: its scans, and the streams of each as files that are read."""

    protocol = "fullbore"
    root_marker = "/"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        text = str(path)
        return text[len("fullbore://") :] if text.startswith("fullbore://") else text

    def _stream(self, path: str) -> Stream:
        place = PurePosixPath(self._strip_protocol(path))
        try:
            return open_scan(str(place.parent))[place.name]
        except _native.NotFoundError as error:
            raise FileNotFoundError(path) from error

    def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        """The scans of a store, or the streams of a scan."""
        place = self._strip_protocol(path).rstrip("/") or "/"
        try:
            scan = open_scan(place)
            found = [self._told(f"{place}/{name}", stream) for name, stream in scan.items()]
        except _native.NotFoundError:
            try:
                found = [self._directory(f"{place}/{name}") for name in self._scans(place)]
            except FileNotFoundError:
                found = [self.info(path)]
        return found if detail else [told["name"] for told in found]

    def info(self, path: str, **_: Any) -> Any:
        """The size of a stream."""
        place = self._strip_protocol(path).rstrip("/")
        try:
            return self._told(place, self._stream(place))
        except FileNotFoundError:
            try:
                open_scan(place)
            except _native.NotFoundError:
                self._scans(place)
            return self._directory(place)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        if mode != "rb":
            raise OSError("a recording is only read")
        stream = self._stream(path)
        file = stream.as_file()
        # Ranges that count from the end need it.
        setattr(file, "size", stream.nbytes)
        return file

    @staticmethod
    def _scans(place: str) -> list[str]:
        """The scans of a store."""
        try:
            return list(open_store(place))
        except _native.NotFoundError as error:
            raise FileNotFoundError(place) from error

    @staticmethod
    def _directory(name: str) -> dict[str, Any]:
        return {"name": name, "size": 0, "type": "directory"}

    @staticmethod
    def _told(name: str, stream: Stream) -> dict[str, Any]:
        return {"name": name, "size": stream.nbytes, "type": "file"}
