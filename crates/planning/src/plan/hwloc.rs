//! A machine from a topology of hwloc (`lstopo --of xml`): PCI devices with their links, and what they carry.
//!
//! Objects are nested as the hardware is. Bridges and devices have `pci_busid`, and `pci_link_speed` in GB/s after the
//! encoding; the devices of the operating system (`nvme0n1`, `ens1`) are inside of them. hwloc reports neither what a
//! link could do nor the rate of a network.

use std::io::Read;
use std::path::Path;

use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use super::error::Error;
use super::figure::{Figure, Origin, Unit};
use super::link::Link;
use super::machine::{MOST_NODES, Machine, Node, NodeId, NodeKind, Uplink};

/// The longest file that is read.
pub const LONGEST_FILE_BYTES: u64 = 64 << 20;

/// The deepest nesting of objects.
const DEEPEST: usize = 64;

/// Reads a description of a machine from a file, at most [`LONGEST_FILE_BYTES`].
pub fn read_text(path: &Path) -> Result<String, Error> {
    let cannot = |source| Error::Read { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(cannot)?;
    let mut text = String::new();
    file.take(LONGEST_FILE_BYTES + 1).read_to_string(&mut text).map_err(cannot)?;
    match text.len() as u64 {
        bytes if bytes > LONGEST_FILE_BYTES => Err(Error::TooLong { path: path.to_owned(), bytes }),
        _ => Ok(text),
    }
}

/// Reads the machine from the text of a topology. `path` is for messages.
pub fn machine(path: &Path, xml: &str) -> Result<Machine, Error> {
    let bad = |why: String| Error::NoTopology { path: path.to_owned(), why };
    let mut topology = Topology::default();
    let mut reader = Reader::from_str(xml);
    loop {
        let event = reader.read_event();
        match event.map_err(|error| bad(error.to_string()))? {
            Event::Start(tag) if tag.name().as_ref() == "object" => {
                topology.open(&tag).map_err(bad)?;
            }
            Event::Empty(tag) if tag.name().as_ref() == "object" => {
                topology.open(&tag).map_err(bad)?;
                topology.above.pop();
            }
            Event::End(tag) if tag.name().as_ref() == "object" => {
                topology.above.pop();
            }
            Event::Eof => break,
            _ => {}
        }
    }
    if !topology.has_machine {
        return Err(bad("it has no object of type Machine".to_owned()));
    }
    Ok(topology.finish())
}

/// An object that is open.
#[derive(Clone, Copy, Debug, Default)]
struct Above {
    /// The PCI node that it is, or that it is in.
    node: Option<NodeId>,
    /// The memory node that it belongs to, if that is one.
    numa: Option<u32>,
}

#[derive(Default)]
struct Topology {
    machine: Machine,
    above: Vec<Above>,
    cores: u32,
    numa_nodes: u32,
    memory_bytes: f64,
    has_machine: bool,
}

impl Topology {
    fn open(&mut self, tag: &BytesStart) -> Result<(), String> {
        let attribute = |name: &str| -> Option<String> {
            let attribute = tag.try_get_attribute(name).ok()??;
            let value = attribute.normalized_value(quick_xml::XmlVersion::Implicit1_0).ok()?;
            Some(value.into_owned())
        };
        if self.above.len() >= DEEPEST {
            return Err(format!("objects are nested more than {DEEPEST} deep"));
        }
        let mut here = self.above.last().copied().unwrap_or_default();
        if let Some(numa) = attribute("nodeset").and_then(|set| only_one(&set)) {
            here.numa = Some(numa);
        }
        let kind = attribute("type").unwrap_or_default();
        match kind.as_str() {
            "Machine" => self.has_machine = true,
            "PU" => self.cores += 1,
            "NUMANode" => {
                self.numa_nodes += 1;
                let bytes = attribute("local_memory").and_then(|bytes| bytes.parse::<f64>().ok());
                self.memory_bytes += bytes.filter(|bytes| bytes.is_finite()).unwrap_or(0.0);
            }
            "Bridge" | "PCIDev" => {
                if let Some(address) = attribute("pci_busid") {
                    let class = attribute("pci_type").unwrap_or_default();
                    let speed = attribute("pci_link_speed").and_then(|speed| speed.parse().ok());
                    let node = pci_node(address, &kind, &class, speed, here);
                    here.node = Some(self.push(node)?);
                }
            }
            "OSDev" => {
                if let Some(node) = attribute("name").and_then(|name| {
                    os_node(name, &attribute("osdev_type").unwrap_or_default(), here)
                }) {
                    here.node = Some(self.push(node)?);
                }
            }
            _ => {}
        }
        self.above.push(here);
        Ok(())
    }

    fn push(&mut self, node: Node) -> Result<NodeId, String> {
        if self.machine.nodes.len() >= MOST_NODES {
            return Err(format!("it has more than {MOST_NODES} devices"));
        }
        if let Some(known) = self.machine.node(&node.name) {
            return Ok(known);
        }
        self.machine.nodes.push(node);
        Ok(self.machine.nodes.len() - 1)
    }

    fn finish(self) -> Machine {
        let read = |value: f64, unit, source| {
            (value > 0.0).then(|| Figure::new(value, unit, Origin::Read, source))
        };
        let mut machine = self.machine;
        machine.drop_repeated_links();
        machine.name = "the machine of the topology".into();
        machine.cores = read(f64::from(self.cores), Unit::Count, "processors of the topology");
        machine.memory = read(self.memory_bytes, Unit::Bytes, "memory of the topology");
        machine.numa_nodes = Some(self.numa_nodes).filter(|count| *count > 0);
        machine
    }
}

fn pci_node(address: String, kind: &str, class: &str, speed: Option<f64>, above: Above) -> Node {
    let class = class.get(..4).unwrap_or_default();
    let kind = match (kind, above.node) {
        ("Bridge", None) => NodeKind::RootPort,
        ("Bridge", Some(_)) => NodeKind::Switch,
        _ if class.starts_with("02") => NodeKind::Nic,
        _ if class.starts_with("01") => NodeKind::Controller,
        _ => NodeKind::Device,
    };
    let link = match speed.and_then(Link::from_hwloc) {
        None => Uplink::Unknown,
        Some(link) => Uplink::Known {
            link,
            // Functions on a root bus may report values that mean nothing.
            origin: match above.node.is_some() || kind == NodeKind::RootPort {
                true => Origin::Read,
                false => Origin::Assumed,
            },
            most: None,
        },
    };
    Node { name: address, kind, parent: above.node, link, numa: above.numa, ..Node::default() }
}

/// A disk or a network interface; other devices of the operating system carry no streams.
fn os_node(name: String, kind: &str, above: Above) -> Option<Node> {
    let kind = match kind {
        "0" | "Block" => NodeKind::Disk,
        "2" | "Network" => NodeKind::Network,
        _ => return None,
    };
    let is_nvme = name.starts_with("nvme") && above.node.is_some();
    let link = if is_nvme { Uplink::Internal } else { Uplink::Unknown };
    Some(Node { name, kind, parent: above.node, link, numa: above.numa, ..Node::default() })
}

/// The only memory node of a set: `0x00000002` is node 1.
fn only_one(set: &str) -> Option<u32> {
    let mut found = None;
    for (word, hex) in set.rsplit(',').enumerate().take(128) {
        let hex = hex.trim().trim_start_matches("0x");
        let bits = if hex.is_empty() { 0 } else { u32::from_str_radix(hex, 16).ok()? };
        if bits == 0 {
            continue;
        }
        if bits.count_ones() > 1 || found.is_some() {
            return None;
        }
        found = Some(word as u32 * 32 + bits.trailing_zeros());
    }
    found
}
