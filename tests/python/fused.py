"""A disk that is a program: one file of a file system in user space, behind a loop device.

    image (a plain file) ── this program ── FUSE ── `disk` ── loop device

It can be told to delay all requests, to limit the rate of writes, to return only half of each read, and to lie about
flushes: then it reports success, and all data written since the previous flush is lost at once, as after a power
failure. It implements the kernel's protocol (`/dev/fuse`), so that nothing has to be installed; it needs root.

It runs as a separate program, because a process that serves a file system must not use it. It ends with its standard
input.

    python3 fused.py IMAGE MOUNTPOINT     then lines: `delay SECONDS`, `rate BYTES`, `short`,
                                          `lie`, `honest`; each is answered with `done`
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT, DISK = 1, 2
NAME = b"disk"
MOST_BYTES = 1 << 20
THREADS = 40  # the number of requests delayed concurrently

LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS, RELEASE = 1, 2, 3, 4, 14, 15, 16, 17, 18
FSYNC, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, DESTROY, BATCH_FORGET = 20, 25, 26, 27, 28, 29, 36, 38, 42
UNANSWERED = {FORGET, BATCH_FORGET, INTERRUPT}

# Settings for the kernel: concurrent reads and writes, each of 256 pages.
ASYNC_READ, BIG_WRITES, ASYNC_DIO, MAX_PAGES = 1 << 0, 1 << 5, 1 << 15, 1 << 22
DIRECT_IO, PARALLEL_DIRECT_WRITES = 1 << 0, 1 << 6

HEAD = struct.Struct("<IIQQIIIHH")
ANSWER = struct.Struct("<IiQ")
TRANSFER = struct.Struct("<QQIIQII")


class Fused:
    def __init__(self, image: str, mountpoint: str):
        self.image = os.open(image, os.O_RDWR)
        self.size = os.fstat(self.image).st_size
        self.device = os.open("/dev/fuse", os.O_RDWR)
        self.delay, self.lies, self.short = 0.0, False, False
        self.rate, self._free_at = float("inf"), 0.0
        self._undo: list[tuple[int, bytes]] = []
        self._one = threading.Lock()
        options = f"fd={self.device},rootmode=40000,user_id=0,group_id=0,allow_other"
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"fullbore-test", mountpoint.encode(), b"fuse", 0, options.encode()):
            raise OSError(ctypes.get_errno(), "mount")

    def serve(self):
        """Serves requests until it is unmounted."""
        while True:
            try:
                request = os.read(self.device, MOST_BYTES + (1 << 16))
            except OSError as error:
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                return
            length, operation, unique, node, *_ = HEAD.unpack_from(request)
            if operation in UNANSWERED:
                continue
            try:
                error, told = 0, self.answer(operation, node, memoryview(request)[HEAD.size : length])
            except OSError as failed:
                error, told = -failed.errno, b""
            try:
                os.writev(self.device, [ANSWER.pack(ANSWER.size + len(told), error, unique), told])
            except OSError as gone:
                # The requester is gone.
                if gone.errno != errno.ENOENT:
                    return

    def answer(self, operation: int, node: int, given: memoryview) -> bytes:
        if operation == INIT:
            major, _, readahead, _ = struct.unpack_from("<IIII", given)
            flags = ASYNC_READ | BIG_WRITES | ASYNC_DIO | MAX_PAGES
            return struct.pack("<IIIIHHIIHHI28x", major, 31, readahead, flags, 64, 48, MOST_BYTES, 1, 256, 0, 0)
        if operation == LOOKUP:
            if node != ROOT or bytes(given).rstrip(b"\0") != NAME:
                raise OSError(errno.ENOENT, "no such file")
            return struct.pack("<QQQQII", DISK, 0, 3600, 3600, 0, 0) + self.attributes(DISK)
        if operation in (GETATTR, SETATTR):
            return struct.pack("<QII", 3600, 0, 0) + self.attributes(node)
        if operation == OPEN:
            return struct.pack("<QII", 0, DIRECT_IO | PARALLEL_DIRECT_WRITES, 0)
        if operation == READ:
            _, offset, bytes_, *_ = TRANSFER.unpack_from(given)
            time.sleep(self.delay)
            return os.pread(self.image, bytes_ // 2 if self.short else bytes_, offset)
        if operation == WRITE:
            _, offset, bytes_, *_ = TRANSFER.unpack_from(given)
            time.sleep(self.delay + self.turn(bytes_))
            self.write(offset, given[TRANSFER.size :][:bytes_])
            return struct.pack("<II", bytes_, 0)
        if operation == FSYNC:
            self.flush()
            return b""
        if operation == STATFS:
            return struct.pack("<QQQQQIIII24x", self.size >> 12, 0, 0, 2, 0, 4096, 255, 4096, 0)
        if operation == OPENDIR:
            return struct.pack("<QII", 0, 0, 0)
        if operation in (RELEASE, RELEASEDIR, FLUSH, READDIR, DESTROY):
            return b""
        raise OSError(errno.ENOSYS, "not to be had here")

    def attributes(self, node: int) -> bytes:
        size = self.size if node == DISK else 0
        mode = stat.S_IFREG | 0o600 if node == DISK else stat.S_IFDIR | 0o700
        return struct.pack("<QQQQQQIIIIIIIIII", node, size, size >> 9, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def turn(self, bytes_: int) -> float:
        """Seconds until the rate allows this write. Writes take turns."""
        with self._one:
            now = time.monotonic()
            self._free_at = max(now, self._free_at) + bytes_ / self.rate
            return self._free_at - now

    def write(self, offset: int, given: memoryview):
        with self._one:
            if self.lies:
                self._undo.append((offset, os.pread(self.image, len(given), offset)))
            os.pwrite(self.image, given, offset)

    def flush(self):
        with self._one:
            while self._undo:
                offset, before = self._undo.pop()
                os.pwrite(self.image, before, offset)

    def obey(self, line: str):
        match line.split():
            case ["delay", seconds]:
                self.delay = float(seconds)
            case ["rate", bytes_]:
                self.rate = float(bytes_)
            case ["short"]:
                self.short = True
            case ["lie"]:
                self.lies = True
            case ["honest"]:
                with self._one:
                    self.lies, self.short, self._undo = False, False, []
            case other:
                raise ValueError(other)


def longest_request(loop, kilobytes=None):
    """Sets the largest request of a loop device; the maximum unless given."""
    queue = Path(f"/sys/block/{Path(loop).name}/queue")
    (queue / "max_sectors_kb").write_text(str(kilobytes or (queue / "max_hw_sectors_kb").read_text()))


class Disk:
    """Such a file, by default with a loop device over it, for tests and benchmarks."""

    def __init__(self, directory: Path, bytes_: int, with_loop: bool = True):
        self.image, self._mount, self.loop = directory / "fused.img", directory / "fused", None
        self.file = self._mount / "disk"
        with self.image.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, bytes_)
        self._mount.mkdir()
        self._program = subprocess.Popen(
            [sys.executable, __file__, self.image, self._mount],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            self._is_answered()
            if not with_loop:
                return
            show = ["losetup", "--direct-io=on", "--show", "-f", self.file]
            self.loop = subprocess.run(show, check=True, capture_output=True, text=True).stdout.strip()
            longest_request(self.loop)
        except (OSError, subprocess.CalledProcessError):
            self.away()
            raise

    def _is_answered(self):
        if self._program.stdout.readline() != "done\n":
            raise OSError(f"no file system in user space here: {self._program.stderr.read().strip()}")

    def tell(self, words: str):
        self._program.stdin.write(words + "\n")
        self._program.stdin.flush()
        self._is_answered()

    def away(self):
        if self.loop:
            subprocess.run(["losetup", "-d", self.loop], capture_output=True)
        self._program.stdin.close()
        self._program.wait()
        subprocess.run(["umount", "-l", self._mount], capture_output=True)
        self._mount.rmdir()
        self.image.unlink()


def main():
    fused = Fused(*sys.argv[1:])
    for _ in range(THREADS):
        threading.Thread(target=fused.serve, daemon=True).start()
    print("done", flush=True)
    for line in sys.stdin:
        fused.obey(line)
        print("done", flush=True)
    # Threads wait in the kernel; their waits end with the process.
    os._exit(0)


if __name__ == "__main__":
    main()
