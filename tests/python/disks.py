"""Small disks of their own for tests: a file system on a loop device, and ways to make it sick.

    backing (tmpfs) ── image ── loop device ── ext4 or XFS ── the member's directory

Needs root. What was set up is taken away again, whatever the disk has been through.
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
SIZE = 320 * MIB  # XFS makes none below 300 MB

# FS_IOC_SHUTDOWN of ext4 and XFS: from then on every request of theirs is an error.
SHUTDOWN = 0x8004587D
WITHOUT_FLUSH = 2

# No journal, so that a write that fails stays the matter of whoever wrote.
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


class Disk:
    """A member on a block device of its own."""

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
            do("umount", self._backing)
            pytest.skip(f"no loop device here: {error}")
        # A loop device calls a request done of which its file took only the first part. One page it takes or refuses,
        # and with blocks of a page no request lies across two.
        Path(f"/sys/block/{Path(self.loop).name}/queue/max_sectors_kb").write_text("4")
        self.mount()

    def mount(self):
        options = {"ext4": "errors=remount-ro", "bare": "errors=continue", "xfs": "defaults"}
        do("mount", "-o", options[self.kind], self.loop, self.member)
        self._mounted += 1

    # what goes wrong

    def fill(self):
        """Another program takes all the room that is left."""
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
        """Every write and every sync is an error."""
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
        """The device has nothing more to give: what was never written before is an error."""
        # Somebody is writing meanwhile, and a file system of less than is used cannot be made.
        for _ in range(100):
            used = sum(path.stat().st_blocks * 512 for path in self._backing.iterdir())
            size = f"remount,size={used + MIB}"
            if subprocess.run(["mount", "-o", size, self._backing], capture_output=True).returncode == 0:
                return
        raise AssertionError("the device is written to faster than it can be bounded")

    def unmount(self):
        """Waits for the kernel to let go of what a program that ended has had open."""
        for _ in range(600):
            if subprocess.run(["umount", self.member], capture_output=True).returncode == 0:
                self._mounted -= 1
                return
            time.sleep(0.1)
        raise AssertionError(f"{self.member} is in use by somebody")

    def unplug(self):
        """The file system goes from its directory, though files of it are open."""
        do("umount", "-l", self.member)
        self._mounted -= 1

    def remove(self):
        """Somebody removes all that is there, and the directory is not a mount any more."""
        for path in self.member.iterdir():
            shutil.rmtree(path, ignore_errors=True)
        self.unplug()

    def major_minor(self):
        device = os.stat(self.loop).st_rdev
        return f"{os.major(device)}:{os.minor(device)}"

    # what makes it good again

    def empty(self):
        (self.member / "filling").unlink()

    def repair(self):
        """Takes it out, gives its device all that it promised, and puts it back."""
        do("mount", "-o", f"remount,size={2 * SIZE}", self._backing)
        while self._mounted:
            self.unmount()
        check = ["e2fsck", "-fy", self.loop] if self.kind != "xfs" else None
        if check:
            # Exit code 1 says that errors were corrected.
            subprocess.run(check, capture_output=True)
        self.mount()

    def away(self):
        """Takes everything away."""
        subprocess.run(["fsfreeze", "-u", self.member], capture_output=True)
        while self._mounted:
            subprocess.run(["umount", "-l", self.member], capture_output=True)
            self._mounted -= 1
        # The kernel keeps it for whoever has the loop device next, and a benchmark would measure it.
        longest_request(self.loop)
        for command in (["losetup", "-d", self.loop], ["umount", "-l", self._backing]):
            subprocess.run(command, capture_output=True)
