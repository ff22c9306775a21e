"""Requests to a station: over TCP, TLS or a Unix socket, with the client of the standard library."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from typing import Any, Optional, Union
from urllib.parse import quote, urlencode, urlsplit

from . import _native
from ._feed import Feed

# The most bytes of an answer, and of a line of events.
MOST_BYTES = 64 << 20
# Seconds within which a station answers. It arms a recording before it answers, and maps its memory for that.
PATIENCE = 120.0
# Seconds within which events come: a station that has none sends a comment every 15 seconds.
SILENCE = 60.0

ADVICE = "does `fullbore serve` run there?"

Path = Union[str, "os.PathLike[str]"]


class StationError(_native.Error):
    """A station refused a request, or cannot be reached. `status` is that of HTTP, or None without an answer."""

    def __init__(self, text: str, status: Optional[int] = None, hint: Optional[str] = None) -> None:
        super().__init__(text if hint is None else f"{text}\n  {hint}")
        self.status = status
        self.hint = hint


class _UnixConnection(http.client.HTTPConnection):
    """A connection to a Unix socket, whose requests name no host."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("station", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Address:
    """Where a station is, and how a program logs in there."""

    def __init__(self, place: Path, token: Optional[Path], certificate: Optional[Path]) -> None:
        text = os.fspath(place)
        self.unix: Optional[str] = None
        self.host, self.port, self.tls = "station", 80, None
        parts = urlsplit(text)
        if parts.scheme in ("http", "https"):
            if not parts.hostname or parts.path.strip("/") or parts.query or parts.username:
                raise ValueError(f"`{text}` is not the address of a station: write http://HOST:PORT")
            self.host = parts.hostname
            self.port = parts.port or (443 if parts.scheme == "https" else 80)
            if parts.scheme == "https":
                self.tls = trusting(certificate)
        elif parts.scheme in ("", "unix"):
            self.unix = text.removeprefix("unix:").removeprefix("//") if parts.scheme else text
        if not self.unix and parts.scheme not in ("http", "https"):
            raise ValueError(f"`{text}` is not the address of a station: write http://HOST:PORT, or the path of its socket")
        if certificate is not None and self.tls is None:
            raise ValueError(f"a certificate is for an address that begins with https://, and not for `{text}`")
        self.token = token.strip() if isinstance(token, str) else None
        if token is not None and not isinstance(token, str):
            with open(token, encoding="utf-8") as file_of_token:
                self.token = file_of_token.read().strip()

    def __str__(self) -> str:
        if self.unix is not None:
            return self.unix
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """The headers that say who the client is."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    def connection(self, timeout: float) -> http.client.HTTPConnection:
        """A new connection."""
        if self.unix is not None:
            return _UnixConnection(self.unix, timeout)
        if self.tls is not None:
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self.tls)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any = None
    ) -> http.client.HTTPResponse:
        """Sends a request, and returns the answer with its body unread. A refusal is an error."""
        headers = dict(self.headers)
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, path, body=data, headers=headers)
            response = connection.getresponse()
            if response.status >= 400:
                raise refusal(response.status, response.read(1 << 20))
        except (OSError, http.client.HTTPException) as error:
            raise unreachable(self, error) from error
        return response

    def ask(self, method: str, path: str, body: Any = None) -> bytes:
        """One request and its whole answer."""
        connection = self.connection(PATIENCE)
        try:
            response = self.send(connection, method, path, body)
            try:
                answer = response.read(MOST_BYTES + 1)
            except (OSError, http.client.HTTPException) as error:
                raise unreachable(self, error) from error
        finally:
            connection.close()
        if len(answer) > MOST_BYTES:
            raise StationError(f"{self}: the answer is longer than {MOST_BYTES >> 20} MiB")
        return answer


def path_of(*parts: str, **query: Any) -> str:
    """The path of a request below `/api/v1`."""
    path = "/api/v1/" + "/".join(quote(part, safe="") for part in parts)
    told = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(told)}" if told else path


def unreachable(address: Address, error: BaseException) -> StationError:
    """The error of a station that gives no answer, or not all of it."""
    if isinstance(error, http.client.IncompleteRead):
        return lost(address)
    return StationError(f"{address}: no answer: {str(error) or type(error).__name__}", None, ADVICE)


def lost(address: Address) -> StationError:
    """The error of a connection that ended before the station ended it."""
    return StationError(f"{address}: the connection was lost", None, ADVICE)


def refusal(status: int, body: bytes) -> StationError:
    """The error of an answer: its problem document, as docs/reference/rest.md describes it."""
    try:
        problem = json.loads(body)
        return StationError(str(problem["detail"]), status, problem.get("advice"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return StationError(f"the station answered {status} {http.client.responses.get(status, '')}".strip(), status)


def trusting(certificate: Optional[Path]) -> ssl.SSLContext:
    """Trust in a certificate, or without one in the authorities of this host."""
    file = None if certificate is None else os.fspath(certificate)
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        raise type(error)(error.errno, f"the certificate {file} cannot be used: {error.strerror}") from error


class Events(Feed[Any]):
    """The states of a station as they change: the documents that `Station.status` returns."""

    def __init__(self, address: Address, hz: int) -> None:
        self._address = address
        self._path = path_of("events", hz=hz)
        self._socket: Optional[socket.socket] = None
        self._response: Optional[http.client.HTTPResponse] = None
        self._closed = False
        self._held = b""

    def receive(self) -> Optional[Any]:
        """Waits for the next state. `None` at the end."""
        if self._closed:
            return None
        try:
            data = []
            for line in iter(self._line, ""):
                if line.startswith("data:"):
                    data.append(line[len("data:") :].strip())
                elif line == "\n" and data:
                    return json.loads("\n".join(data))
        except (OSError, http.client.HTTPException, ValueError) as error:
            if not self._closed:
                self.close()
                raise unreachable(self._address, error) from error
        self.close()
        return None

    def _line(self) -> str:
        response = self._response
        if response is None:
            if self._closed:
                return ""
            response = self._connect()
        # `readline` would not tell a connection that is lost from the last chunk.
        while b"\n" not in self._held:
            more = response.read1(1 << 16)
            if not more:
                return ""
            self._held += more
            if len(self._held) > MOST_BYTES:
                raise ValueError(f"an event is longer than {MOST_BYTES >> 20} MiB")
        line, _, self._held = self._held.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r") + "\n"

    def _connect(self) -> http.client.HTTPResponse:
        connection = self._address.connection(SILENCE)
        try:
            response = self._address.send(connection, "GET", self._path)
        except BaseException:
            connection.close()
            raise
        self._response, self._socket = response, connection.sock
        if self._closed:
            # Another thread has closed it meanwhile.
            self.close()
        return response

    def close(self) -> None:
        """Ends the connection."""
        self._closed = True
        connected, self._socket, self._response = self._socket, None, None
        if connected is not None:
            try:
                connected.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the station ended it before
            connected.close()
