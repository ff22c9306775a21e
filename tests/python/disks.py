"""Small separate disks for tests: a file system on a loop device, and ways to make it fail.

    backing (tmpfs) ── image ── loop device ── ext4 or XFS ── the member's directory

Needs root. Everything that was set up is removed again, whatever happened to the disk.
"""

import fcntl
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest
from fused import longest_request

MIB = 1 << 20
SIZE = 320 * MIB  # the smallest XFS is 300 MB

# FS_IOC_SHUTDOWN of ext4 and XFS: from then on every request to them fails.
SHUTDOWN = 0x8004587D
WITHOUT_FLUSH = 2

# No journal, so that a failed write affects only its writer.
MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1"],
    "bare": ["mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "^has_journal", "-E", "lazy_itable_init=1"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
}

NEEDED = ["mkfs.ext4", "mkfs.xfs", "fsfreeze", "losetup"]

MARKS = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a block device of one's own needs root"),
    pytest.mark.skipif(
        any(shutil.which(program) is None for program in NEEDED),
        reason=f"needs {', '.join(NEEDED)}",
    ),
]


def do(*command):
    subprocess.run(list(map(str, command)), check=True, capture_output=True)


def unmount(place):
    """Unmounts a file system. The kernel releases the files of an io_uring up to a second after its process has ended, so
    a file system can be busy until then."""
    for _ in range(600):
        done = subprocess.run(["umount", place], capture_output=True, text=True)
        if done.returncode == 0:
            return
        time.sleep(0.1)
    raise AssertionError(done.stderr)


class Disk:
    """A member on a separate block device."""

    def __init__(self, place: Path, kind: str):
        self.kind, self.member = kind, place / "member"
        self._backing = place / "backing"
        self._image = self._backing / "disk.img"
        self._mounted = 0
        for directory in (self.member, self._backing):
            directory.mkdir(parents=True)
        try:
            do("mount", "-t", "tmpfs", "-o", f"size={2 * SIZE}", "none", self._backing)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no tmpfs here: {error.stderr.decode().strip()}")
        try:
            with self._image.open("wb") as file:
                file.truncate(SIZE)
            do(*MAKE[kind], self._image)
            self.loop = subprocess.run(
                ["losetup", "--show", "-f", self._image], check=True, capture_output=True, text=True
            ).stdout.strip()
        except (OSError, subprocess.CalledProcessError) as error:
            unmount(self._backing)
            pytest.skip(f"no loop device here: {error}")
        # A loop device reports a request as done even if its file took only the first part. It takes or refuses a
        # single page as a whole, and with blocks of a page no request crosses two.
        Path(f"/sys/block/{Path(self.loop).name}/queue/max_sectors_kb").write_text("4")
        self.mount()

    def mount(self):
        options = {"ext4": "errors=remount-ro", "bare": "errors=continue", "xfs": "defaults"}
        do("mount", "-o", options[self.kind], self.loop, self.member)
        self._mounted += 1

    # faults

    def fill(self):
        """Another program uses up all the space that is left."""
        filling = self.member / "filling"
        status = os.statvfs(self.member)
        left = status.f_bavail * status.f_frsize
        with filling.open("wb") as file:
            while left >= 1 << 16:
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, 2), left)
                    file.truncate(file.seek(0, 2))
                except OSError:
                    left //= 2

    def read_only(self):
        """As ext4 does by itself after an error of its journal."""
        do("mount", "-o", "remount,abort", self.member)

    def shut_down(self):
        """Makes every write and every sync fail."""
        directory = os.open(self.member, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, SHUTDOWN, struct.pack("I", WITHOUT_FLUSH))
        finally:
            os.close(directory)

    def freeze(self):
        do("fsfreeze", "-f", self.member)

    def thaw(self):
        do("fsfreeze", "-u", self.member)

    def bad_from_here(self):
        """The device has no more space: the first write to any unwritten part fails."""
        # Another process is writing meanwhile, and a file system smaller than the used space cannot be made.
        for _ in range(100):
            used = sum(path.stat().st_blocks * 512 for path in self._backing.iterdir())
            size = f"remount,size={used + MIB}"
            if subprocess.run(["mount", "-o", size, self._backing], capture_output=True).returncode == 0:
                return
        raise AssertionError("the device is written to faster than it can be bounded")

    def unmount(self):
        unmount(self.member)
        self._mounted -= 1

    def unplug(self):
        """Unmounts the file system from its directory, although files on it are open."""
        do("umount", "-l", self.member)
        self._mounted -= 1

    def remove(self):
        """Removes all files, and unmounts the directory."""
        for path in self.member.iterdir():
            shutil.rmtree(path, ignore_errors=True)
        self.unplug()

    def major_minor(self):
        device = os.stat(self.loop).st_rdev
        return f"{os.major(device)}:{os.minor(device)}"

    # repairs

    def empty(self):
        (self.member / "filling").unlink()

    def repair(self):
        """Unmounts the disk, gives its device all the space that it promised, and mounts it again."""
        do("mount", "-o", f"remount,size={2 * SIZE}", self._backing)
        while self._mounted:
            self.unmount()
        check = ["e2fsck", "-fy", self.loop] if self.kind != "xfs" else None
        if check:
            # Exit code 1 means that errors were corrected.
            subprocess.run(check, capture_output=True)
        self.mount()

    def away(self):
        """Removes everything."""
        subprocess.run(["fsfreeze", "-u", self.member], capture_output=True)
        while self._mounted:
            subprocess.run(["umount", "-l", self.member], capture_output=True)
            self._mounted -= 1
        # The kernel would keep the limit for the next user of the loop device, such as a benchmark.
        longest_request(self.loop)
        for command in (["losetup", "-d", self.loop], ["umount", "-l", self._backing]):
            subprocess.run(command, capture_output=True)
