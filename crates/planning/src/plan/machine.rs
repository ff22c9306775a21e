//! A machine as a plan sees it: memory as the root of a tree of links, and sets of disks.
//!
//! ```text
//! memory ─── root port ─── switch ─┬─ card ─── network or instrument
//!                                  └─ controller ─── disks
//! ```
//!
//! Each node has one link, towards memory. A flow goes up from its source to the nearest common node, and down to its
//! sink, so the two directions of a link are independent.

use fullbore_core::units::{ByteRate, ByteSize};
use serde::{Deserialize, Serialize};

use super::figure::{Figure, Origin, Unit};
use super::link::Link;

/// The most nodes of a machine.
pub const MOST_NODES: usize = 4096;

/// A place in [`Machine::nodes`].
pub type NodeId = usize;

/// The machine.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// All nodes but memory.
    pub nodes: Vec<Node>,
    /// The sets of disks that recordings are dealt over.
    pub sets: Vec<DiskSet>,
    /// Bytes of memory that a recording may use for blocks.
    pub memory: Option<Figure>,
    /// Bytes per second that all cores copy together.
    pub copy_rate: Option<Figure>,
    /// The number of cores.
    pub cores: Option<Figure>,
    /// CPU seconds per 10⁹ bytes of the whole path from packets to disks.
    pub cpu_per_gb: Option<Figure>,
    /// The number of memory nodes, if known.
    pub numa_nodes: Option<u32>,
}

/// The kind of node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    /// A port of the processor.
    RootPort,
    /// A PCI Express switch, or any bridge.
    Switch,
    /// A network card.
    Nic,
    /// A network, behind a port of a card.
    Network,
    /// An instrument that makes or takes samples.
    Instrument,
    /// A controller of disks.
    Controller,
    /// A disk.
    Disk,
    /// Anything else.
    #[default]
    Device,
}

/// A node, and its link towards memory.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Its name, unique in the machine: an address, or as described.
    pub name: String,
    /// The kind.
    pub kind: NodeKind,
    /// The node above it; `None`: memory.
    pub parent: Option<NodeId>,
    /// The link to it.
    pub link: Uplink,
    /// Its memory node, if known.
    pub numa: Option<u32>,
    /// Its onboard memory, if known.
    pub fifo: Option<ByteSize>,
    /// An instrument of the table, if it is one.
    pub instrument: Option<String>,
}

/// The link of a node towards memory.
#[derive(Clone, Debug, Default)]
pub enum Uplink {
    /// It has no limit of its own: a root port, or a port within a switch.
    Internal,
    /// Its rate is not known.
    #[default]
    Unknown,
    /// A link.
    Known {
        /// As it is now.
        link: Link,
        /// Where that is from.
        origin: Origin,
        /// What both ends can do, if both are known.
        most: Option<Link>,
    },
}

impl Uplink {
    /// A described link.
    pub fn given(link: Link, most: Option<Link>) -> Self {
        Self::Known { link, origin: Origin::Given, most }
    }
}

/// The level of a RAID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Raid {
    /// Striping without redundancy, also of fullbore itself.
    #[default]
    #[serde(rename = "0")]
    Stripe,
    /// Every disk has all data.
    #[serde(rename = "1")]
    Mirror,
    /// One disk's worth of parity.
    #[serde(rename = "5")]
    Parity,
    /// Two disks' worth of parity.
    #[serde(rename = "6")]
    DoubleParity,
    /// Striping over mirrored pairs.
    #[serde(rename = "10")]
    StripedMirror,
}

impl Raid {
    /// The number of disks whose rate and capacity data can use, for whole stripes.
    pub fn data_disks(self, disks: u32) -> u32 {
        match self {
            Self::Stripe => disks,
            Self::Mirror => disks.min(1),
            Self::Parity => disks.saturating_sub(1),
            Self::DoubleParity => disks.saturating_sub(2),
            Self::StripedMirror => disks / 2,
        }
    }

    /// The number of disks that it survives the loss of, whichever they are.
    pub fn survives(self, disks: u32) -> u32 {
        match self {
            Self::Stripe => 0,
            Self::Mirror => disks.saturating_sub(1),
            Self::Parity | Self::StripedMirror => 1.min(disks.saturating_sub(1)),
            Self::DoubleParity => 2.min(disks.saturating_sub(1)),
        }
    }

    /// Its usual name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stripe => "RAID 0",
            Self::Mirror => "RAID 1",
            Self::Parity => "RAID 5",
            Self::DoubleParity => "RAID 6",
            Self::StripedMirror => "RAID 10",
        }
    }
}

/// Disks that a recording uses as one.
#[derive(Clone, Debug, Default)]
pub struct DiskSet {
    /// Its name.
    pub name: String,
    /// Its disks, or the controller that has them; empty if their place is not known.
    pub at: Vec<NodeId>,
    /// The number of disks.
    pub disks: u32,
    /// How they are combined.
    pub raid: Raid,
    /// The rate that one disk writes over its whole capacity.
    pub disk_write: Option<Figure>,
    /// The rate that the set writes over its whole capacity, where it was measured as one.
    pub set_write: Option<Figure>,
    /// The rate that the set writes for a short time.
    pub peak: Option<Figure>,
    /// The rate that the set reads.
    pub read: Option<Figure>,
    /// Free bytes of the set, without redundancy.
    pub capacity: Option<Figure>,
    /// Seconds of the longest write.
    pub stall: Option<Figure>,
    /// Bytes that the disks may take in their life, all together.
    pub endurance: Option<Figure>,
}

impl DiskSet {
    /// The rate of continuous writing, and its sum in words.
    pub fn continuous(&self) -> Option<(Figure, String)> {
        if let Some(whole) = &self.set_write {
            return Some((whole.clone(), "the set as a whole".to_owned()));
        }
        let disk = self.disk_write.as_ref()?;
        let count = self.raid.data_disks(self.disks);
        let sum = match self.raid {
            Raid::Stripe => format!("{count} × {disk}"),
            raid => format!("{count} × {disk} of {} disks in {}", self.disks, raid.name()),
        };
        Some((disk.with(disk.value * f64::from(count)), sum))
    }

    /// Bytes that go to the disks for each byte of data: copies and parity.
    pub fn amplification(&self) -> f64 {
        f64::from(self.disks.max(1)) / f64::from(self.raid.data_disks(self.disks).max(1))
    }

    /// True if both have the same disks, at different places.
    pub fn is_like(&self, other: &Self) -> bool {
        self.disks == other.disks
            && self.raid == other.raid
            && self.disk_write == other.disk_write
            && self.set_write == other.set_write
            && self.capacity == other.capacity
    }

    /// The same set with one disk more, of the same kind.
    pub fn with_one_more(&self) -> Self {
        let (before, disks) = (self.raid.data_disks(self.disks).max(1), self.disks + 1);
        let factor = f64::from(self.raid.data_disks(disks)) / f64::from(before);
        let more = |figure: &Option<Figure>, by: f64| {
            figure.as_ref().map(|figure| figure.with(figure.value * by))
        };
        let of_all = f64::from(disks) / f64::from(self.disks.max(1));
        Self {
            disks,
            set_write: more(&self.set_write, factor),
            peak: more(&self.peak, factor),
            read: more(&self.read, factor),
            capacity: more(&self.capacity, factor),
            endurance: more(&self.endurance, of_all),
            ..self.clone()
        }
    }
}

/// CPU seconds per 10⁹ bytes from packets to disks, account and index included: with a network card at 3 Gbit/s, on one
/// core of a virtual AMD EPYC (Zen 3). `docs/explanation/benchmarks.md` has the measurement. It is lower at higher rates.
pub const CPU_PER_GB: f64 = 0.427;

impl Machine {
    /// The place of a node by its name.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// The nodes from this one up to memory, this one first.
    pub fn up(&self, node: NodeId) -> Vec<NodeId> {
        let mut path = vec![node];
        let mut at = node;
        // A description is checked for loops; the bound holds for any.
        while let Some(parent) = self.nodes[at].parent.filter(|_| path.len() <= self.nodes.len()) {
            path.push(parent);
            at = parent;
        }
        path
    }

    /// Removes limits that a kernel reports twice.
    ///
    /// A root port has no link above it, and the lower port of a switch none to its upper one: their files describe the
    /// link below, which the device there has too. Each second bridge from the root is such a port. A port with several
    /// functions below it keeps the link, because they share it.
    pub fn drop_repeated_links(&mut self) {
        let is_bridge = |node: &Node| matches!(node.kind, NodeKind::RootPort | NodeKind::Switch);
        let is_repeated = |id: NodeId| {
            let mut children = self.nodes.iter().filter(|node| node.parent == Some(id));
            let (first, second) = (children.next(), children.next());
            let depth = self.up(id).len() - 1;
            match (first, second) {
                (_, Some(_)) => false,
                (None, _) => depth == 0,
                (Some(child), None) => {
                    depth == 0
                        || (depth.is_multiple_of(2) && matches!(child.link, Uplink::Known { .. }))
                }
            }
        };
        let ports: Vec<NodeId> = (0..self.nodes.len())
            .filter(|id| is_bridge(&self.nodes[*id]) && is_repeated(*id))
            .collect();
        for id in ports {
            self.nodes[id].link = Uplink::Internal;
        }
    }

    /// The measured cost of the path, or that of the table.
    pub fn cost(&self) -> Figure {
        self.cpu_per_gb.clone().unwrap_or_else(|| {
            let source = "a virtual AMD EPYC (Zen 3) at 3 Gbit/s; `fullbore bench all` measures this machine";
            Figure::new(CPU_PER_GB, Unit::CpuPerGb, Origin::Table, source)
        })
    }

    /// Adds a network card on a link of its own with the same network as the card of a node, and returns the place
    /// that corresponds to the node.
    pub fn add_card_like(&mut self, node: NodeId) -> NodeId {
        let path = self.up(node);
        let card = path.iter().position(|it| self.nodes[*it].kind == NodeKind::Nic).unwrap_or(0);
        let mut above = None;
        for at in path[..=card].iter().rev() {
            let name = format!("one more {}", self.nodes[*at].name);
            self.nodes.push(Node { name, parent: above, ..self.nodes[*at].clone() });
            above = Some(self.nodes.len() - 1);
        }
        self.nodes.len() - 1
    }
}

/// A rate in bytes per second as a figure.
pub fn rate(rate: ByteRate, origin: Origin, source: impl Into<String>) -> Figure {
    Figure::new(rate.0 as f64, Unit::Rate, origin, source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raid_levels_give_the_rate_of_their_data_disks() {
        let set = |raid, disks| DiskSet {
            disks,
            raid,
            disk_write: Some(Figure::given(100e6, Unit::Rate)),
            ..DiskSet::default()
        };
        let cases = [
            (Raid::Stripe, 4, 400e6, 1.0, 0),
            (Raid::Mirror, 2, 100e6, 2.0, 1),
            (Raid::Parity, 5, 400e6, 1.25, 1),
            (Raid::DoubleParity, 6, 400e6, 1.5, 2),
            (Raid::StripedMirror, 4, 200e6, 2.0, 1),
        ];
        for (raid, disks, rate, amplification, survives) in cases {
            let set = set(raid, disks);
            assert_eq!(set.continuous().unwrap().0.value, rate, "{raid:?}");
            assert_eq!(set.amplification(), amplification, "{raid:?}");
            assert_eq!(raid.survives(disks), survives, "{raid:?}");
        }
        assert_eq!(set(Raid::Parity, 5).with_one_more().continuous().unwrap().0.value, 500e6);
        assert_eq!(
            set(Raid::StripedMirror, 4).with_one_more().continuous().unwrap().0.value,
            200e6
        );
    }

    #[test]
    fn a_card_is_copied_with_its_network() {
        let node =
            |name: &str, kind, parent| Node { name: name.into(), kind, parent, ..Node::default() };
        let mut machine = Machine {
            nodes: vec![
                node("port", NodeKind::RootPort, None),
                node("nic", NodeKind::Nic, Some(0)),
                node("net", NodeKind::Network, Some(1)),
            ],
            ..Machine::default()
        };
        let more = machine.add_card_like(2);
        let names: Vec<&str> =
            machine.up(more).iter().map(|it| &*machine.nodes[*it].name).collect();
        assert_eq!(names, ["one more net", "one more nic"]);
    }
}
