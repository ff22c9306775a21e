"""Gives each worker of pytest-xdist a network of its own, so that tests run concurrently.

A port, a loopback counter and a mount belong to one worker: no test takes the port of another, and a packet lost by one
test never moves a counter that another test relies on. Entering needs root; without root the tests run one after
another.
"""

import ctypes
import os
import subprocess
import tempfile

CLONE_NEWNS = 0x00020000
CLONE_NEWNET = 0x40000000


def enter():
    """Moves the calling thread, and its later children, into new network and mount namespaces."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET | CLONE_NEWNS) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"new namespaces: {os.strerror(error)}")
    do("mount", "--make-rprivate", "/")
    show_own_devices()
    do("ip", "link", "set", "lo", "up")


def show_own_devices():
    """Makes /sys show the devices of this network instead of those of the network in which it was mounted.

    The rest of /sys stays, with the control groups that are mounted in it.
    """
    with tempfile.TemporaryDirectory() as place:
        do("mount", "-t", "sysfs", "sysfs", place)
        for folder in ("devices/virtual/net", "class/net"):
            do("mount", "--bind", f"{place}/{folder}", f"/sys/{folder}")
        do("umount", place)


def do(*command):
    subprocess.run(command, check=True, capture_output=True)



def is_possible():
    """True if this process can make namespaces: tried in a child."""
    try:
        command = ["unshare", "--net", "--mount", "ip", "link", "set", "lo", "up"]
        child = subprocess.run(command, capture_output=True)
    except OSError:
        return False
    return child.returncode == 0


if __name__ == "__main__":
    # `make test` asks for the number of workers. Tests wait four fifths of their time, so there are two workers per
    # core of a small machine; without namespaces tests run one after another.
    cores = os.cpu_count() or 1
    print(min(max(4, 2 * cores), cores + 4) if is_possible() else 0)
