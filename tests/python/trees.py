"""A machine as Linux shows it in /sys: bridges, a drive and a network card, with links."""

import os


class Tree:
    """A directory with `sys` and `proc` that programs take for a machine."""

    def __init__(self, root):
        self.root = root
        for node in range(2):
            at = f"sys/devices/system/cpu/cpu{node}"
            self.put(f"{at}/topology/core_cpus", f"{1 << node:x}")
            self.put(f"{at}/topology/thread_siblings", f"{1 << node:x}")
            self.put(f"{at}/topology/package_cpus", "3")
            self.put(f"{at}/topology/core_siblings", "3")
            self.put(f"{at}/topology/core_id", str(node))
            self.put(f"{at}/topology/physical_package_id", "0")
            self.put(f"{at}/online", "1")
        for name in ("online", "possible", "present"):
            self.put(f"sys/devices/system/cpu/{name}", "0-1")
        for name in ("online", "possible"):
            self.put(f"sys/devices/system/node/{name}", "0")
        self.put("sys/devices/system/node/node0/cpumap", "3")
        self.put("sys/devices/system/node/node0/cpulist", "0-1")
        self.put("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  67108864 kB")
        self.put("sys/devices/system/node/node0/distance", "10")
        self.put("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 60000000 kB")
        self.put("proc/cpuinfo", "processor : 0\n\nprocessor : 1")
        self.put("proc/mounts", "")

    def put(self, path, text):
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else f"{text}\n".encode())

    def link(self, target, name):
        name = self.root / name
        name.parent.mkdir(parents=True, exist_ok=True)
        name.symlink_to(os.path.relpath(self.root / target, name.parent))

    def device(self, path, kind, speed, lanes, most_speed, most_lanes, buses=None):
        """A PCI device below `pci0000:00`; `buses` of a bridge: its own, the one below, and the last one below."""
        at = f"sys/devices/{path}"
        config = bytearray(256)
        config[0:4] = bytes((0x86, 0x80, 0x34, 0x12))
        config[9:12] = kind.to_bytes(3, "little")
        if buses:
            config[0x0E], config[0x18:0x1B] = 1, bytes(buses)
        self.put(f"{at}/config", bytes(config))
        facts = {
            "class": f"0x{kind:06x}", "vendor": "0x8086", "device": "0x1234", "subsystem_vendor": "0x8086",
            "subsystem_device": "0x0001", "revision": "0x01", "numa_node": "0", "local_cpus": "3",
            "current_link_speed": speed, "current_link_width": lanes, "max_link_speed": most_speed,
            "max_link_width": most_lanes,
        }  # fmt: skip
        for name, text in facts.items():
            self.put(f"{at}/{name}", str(text))
        self.link(at, f"sys/bus/pci/devices/{path.rsplit('/', 1)[-1]}")

    def interface(self, card, name, megabits):
        at = f"sys/devices/{card}/net/{name}"
        for file, text in (("speed", megabits), ("mtu", 9000), ("address", "00:11:22:33:44:55")):
            self.put(f"{at}/{file}", str(text))
        self.link(f"sys/devices/{card}", f"{at}/device")
        self.link(at, f"sys/class/net/{name}")

    def drive(self, controller, name):
        at = f"sys/devices/{controller}/nvme/nvme0/{name}"
        for file, text in (("size", 2097152), ("dev", "259:0"), ("queue/rotational", 0)):
            self.put(f"{at}/{file}", str(text))
        self.link(f"sys/devices/{controller}", f"{at}/device")
        for directory in ("sys/class/block", "sys/block"):
            self.link(at, f"{directory}/{name}")


def with_switch(root):
    """A drive and a card below one switch: the card's link runs below what both ends can do."""
    tree = Tree(root)
    port = "pci0000:00/0000:00:01.0"
    switch = f"{port}/0000:01:00.0"
    first, second = f"{switch}/0000:02:00.0", f"{switch}/0000:02:01.0"
    gen1, gen3, gen4 = "2.5 GT/s PCIe", "8.0 GT/s PCIe", "16.0 GT/s PCIe"
    tree.device(port, 0x060400, gen3, 16, gen3, 16, (0, 1, 4))
    tree.device(switch, 0x060400, gen3, 16, gen4, 16, (1, 2, 4))
    tree.device(first, 0x060400, gen3, 4, gen3, 8, (2, 3, 3))
    tree.device(second, 0x060400, gen1, 4, gen3, 8, (2, 4, 4))
    tree.device(f"{first}/0000:03:00.0", 0x010802, gen3, 4, gen3, 4)
    tree.device(f"{second}/0000:04:00.0", 0x020000, gen1, 4, gen3, 8)
    tree.interface(f"{second}/0000:04:00.0", "ens1", 10000)
    tree.drive(f"{first}/0000:03:00.0", "nvme0n1")
    return tree
