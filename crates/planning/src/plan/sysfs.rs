//! A machine as its kernel reports it: PCI devices and their links, network interfaces, disks, processors and memory.
//!
//! The place of a device in `/sys/devices` is the path of bridges that lead to it:
//! `pci0000:00/0000:00:02.1/0000:01:00.0` is a card below a root port. Files may be missing: a virtual machine reports no
//! links, and `numa_node` is −1 if it is not known. What is missing stays unknown.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fullbore_core::affinity;
use fullbore_core::units::ByteRate;
use fullbore_survey::bench::environment::{Roots, text};

use super::error::Error;
use super::figure::{Figure, Origin, Unit};
use super::link::Link;
use super::machine::{MOST_NODES, Machine, Node, NodeId, NodeKind, Uplink};

/// The most entries of a directory that are read.
const MOST_ENTRIES: usize = 4096;

/// The roots below a directory: a copy of `/sys`, or a directory that has one as `sys`, and maybe `proc` beside it.
pub fn roots(directory: &Path) -> Result<Roots, Error> {
    let inside = directory.join("sys");
    let roots = match inside.is_dir() {
        true => Roots { sysfs: inside, procfs: directory.join("proc") },
        // Nothing of this machine may be read in place of the other one.
        false => Roots { sysfs: directory.to_owned(), procfs: directory.join("proc") },
    };
    match roots.sysfs.join("bus/pci/devices").is_dir() {
        true => Ok(roots),
        false => Err(Error::NoSysfs { path: directory.to_owned() }),
    }
}

/// Reads the machine.
pub fn machine(roots: &Roots) -> Machine {
    let mut reader = TreeReader::default();
    for device in entries(&roots.sysfs.join("bus/pci/devices")) {
        if has_data(&device) {
            reader.chain(&device);
        }
    }
    for interface in entries(&roots.sysfs.join("class/net")) {
        reader.interface(&interface);
    }
    for disk in entries(&roots.sysfs.join("block")) {
        reader.disk(&disk);
    }
    let mut machine = reader.machine;
    machine.drop_repeated_links();
    let host = roots.proc("sys/kernel/hostname");
    machine.name = host.unwrap_or_else(|| "this machine".into());
    processors(roots, &mut machine);
    machine
}

/// True for the classes of devices that move data: disks and networks.
fn has_data(device: &Path) -> bool {
    text(&device.join("class")).is_some_and(|class| {
        let class = class.trim_start_matches("0x").to_owned();
        class.starts_with("01") || class.starts_with("02")
    })
}

#[derive(Default)]
struct TreeReader {
    machine: Machine,
    /// Nodes by PCI address.
    known: BTreeMap<String, NodeId>,
    /// What each node can do at its own end.
    most: Vec<Option<Link>>,
}

impl TreeReader {
    fn push(&mut self, node: Node, most: Option<Link>) -> Option<NodeId> {
        if self.machine.nodes.len() >= MOST_NODES || self.machine.node(&node.name).is_some() {
            return None;
        }
        self.machine.nodes.push(node);
        self.most.push(most);
        Some(self.machine.nodes.len() - 1)
    }

    /// Adds the bridges above a device, and the device if it is one of PCI. Returns the lowest.
    fn chain(&mut self, device: &Path) -> Option<NodeId> {
        let place = device.canonicalize().ok()?;
        let mut above = None;
        let mut path = PathBuf::new();
        for part in place.components() {
            path.push(part);
            let address = part.as_os_str().to_string_lossy();
            if !is_address(&address) {
                continue;
            }
            above = match self.known.get(&*address) {
                Some(node) => Some(*node),
                None => {
                    let (node, most) = self.pci_node(&path, &address, above);
                    let id = self.push(node, most)?;
                    self.known.insert(address.into_owned(), id);
                    Some(id)
                }
            };
        }
        above
    }

    /// A node, and what its own end of the link can do.
    fn pci_node(
        &self,
        device: &Path,
        address: &str,
        parent: Option<NodeId>,
    ) -> (Node, Option<Link>) {
        let read = |name: &str| text(&device.join(name));
        let class = read("class").unwrap_or_default();
        let kind = match class.trim_start_matches("0x").get(..4) {
            Some("0604") if parent.is_none() => NodeKind::RootPort,
            Some("0604") => NodeKind::Switch,
            Some(class) if class.starts_with("02") => NodeKind::Nic,
            Some(class) if class.starts_with("01") => NodeKind::Controller,
            _ => NodeKind::Device,
        };
        let link = |state: &str| {
            let (speed, width) =
                (read(&format!("{state}_link_speed"))?, read(&format!("{state}_link_width"))?);
            Link::from_sysfs(&speed, &width)
        };
        let own = link("max");
        let port = parent.and_then(|port| self.most[port].as_ref());
        let most = own.as_ref().zip(port).map(|(own, port)| own.both(port));
        // Functions on a root bus may report values that mean nothing.
        let on_root_bus = parent.is_none() && kind != NodeKind::RootPort;
        let origin = if on_root_bus { Origin::Assumed } else { Origin::Read };
        let link = link("current").map(|link| Uplink::Known { link, origin, most });
        let node = Node {
            name: address.to_owned(),
            kind,
            parent,
            link: link.unwrap_or_default(),
            numa: read("numa_node").and_then(|node| node.parse().ok()),
            ..Node::default()
        };
        (node, own)
    }

    /// Adds a network interface below its card.
    fn interface(&mut self, interface: &Path) -> Option<()> {
        let device = interface.join("device");
        if !device.exists() {
            return None;
        }
        let card = self.chain(&device);
        let name = interface.file_name()?.to_str()?.to_owned();
        let speed = text(&interface.join("speed")).and_then(|speed| speed.parse::<u64>().ok());
        let mtu = text(&interface.join("mtu")).and_then(|mtu| mtu.parse().ok());
        // The kernel reports −1 if there is no link.
        let link = speed.filter(|speed| (1..10_000_000).contains(speed)).map(|megabits| {
            let link = Link::Ethernet { rate: ByteRate(megabits * 125_000), mtu };
            Uplink::Known { link, origin: Origin::Read, most: None }
        });
        let node = Node {
            name,
            kind: NodeKind::Network,
            parent: card,
            link: link.unwrap_or_default(),
            numa: card.and_then(|card| self.machine.nodes[card].numa),
            ..Node::default()
        };
        self.push(node, None).map(drop)
    }

    /// Adds a disk below its controller.
    fn disk(&mut self, disk: &Path) -> Option<()> {
        let name = disk.file_name()?.to_str()?.to_owned();
        // Disks made of others, and of memory, have no controller.
        if ["loop", "ram", "zram", "dm-", "md"].iter().any(|made| name.starts_with(made)) {
            return None;
        }
        let controller = self.chain(disk);
        let is_nvme = name.starts_with("nvme");
        let node = Node {
            name,
            kind: NodeKind::Disk,
            parent: controller,
            // An NVMe drive is its own controller; the link of any other disk is not reported.
            link: if is_nvme && controller.is_some() { Uplink::Internal } else { Uplink::Unknown },
            numa: controller.and_then(|controller| self.machine.nodes[controller].numa),
            ..Node::default()
        };
        self.push(node, None).map(drop)
    }
}

/// `0000:00:02.1`, also with the longer domains of some hosts.
fn is_address(name: &str) -> bool {
    let hex = |text: &str, least: usize, most: usize| {
        (least..=most).contains(&text.len()) && text.chars().all(|it| it.is_ascii_hexdigit())
    };
    let mut parts = name.split(':');
    let (Some(domain), Some(bus), Some(rest), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let Some((device, function)) = rest.split_once('.') else { return false };
    hex(domain, 4, 8) && hex(bus, 2, 2) && hex(device, 2, 2) && hex(function, 1, 1)
}

/// Processors, memory and memory nodes.
fn processors(roots: &Roots, machine: &mut Machine) {
    let online = roots.sys("devices/system/cpu/online").and_then(|list| affinity::parse(&list));
    machine.cores = online.map(|cpus| {
        Figure::new(cpus.len() as f64, Unit::Count, Origin::Read, "processors that are online")
    });
    let memory = roots.proc("meminfo").and_then(|table| kilobytes(&table, "MemAvailable"));
    machine.memory =
        memory.map(|bytes| Figure::new(bytes, Unit::Bytes, Origin::Read, "available memory"));
    let nodes = entries(&roots.sysfs.join("devices/system/node")).into_iter().filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok())
    });
    machine.numa_nodes = u32::try_from(nodes.count()).ok().filter(|count| *count > 0);
}

/// A line of `/proc/meminfo` in bytes.
fn kilobytes(table: &str, name: &str) -> Option<f64> {
    let line = table.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? as f64 * 1024.0)
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return vec![] };
    let mut paths: Vec<PathBuf> =
        entries.take(MOST_ENTRIES).flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
