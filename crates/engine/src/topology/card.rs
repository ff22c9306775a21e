//! Network cards of a socket: their memory node, and the cores that handle their interrupts.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use fullbore_core::affinity::{MOST_CPUS, NicTopology};
use serde::Serialize;

use super::{above, entries, list, node_of, text};

/// The largest number of cards that are examined one by one.
const MOST_CARDS: usize = 64;

/// Where packets enter this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NetworkPath<'a> {
    /// The local address that they are sent to.
    pub address: IpAddr,
    /// The interface, if it is given.
    pub interface: Option<&'a str>,
}

/// The network link of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// The interface.
    pub interface: String,
    /// The rate in Mbit/s, if the kernel reports it.
    pub megabits: Option<u64>,
}

/// Returns the link of connections from this address of the host.
pub fn link(root: &Path, address: IpAddr) -> Option<Link> {
    let address = address.to_canonical();
    let interface = match address.is_loopback() {
        true => "lo".to_owned(),
        false => owner(root, address).filter(|name| !name.contains('/'))?,
    };
    let speed = text(&root.join("sys/class/net").join(&interface).join("speed"));
    // The kernel reports -1 if it does not know the speed.
    let megabits = speed.and_then(|speed| speed.trim().parse().ok()).filter(|speed| *speed > 0);
    Some(Link { interface, megabits })
}

/// Returns the interface with this address of the host, or with its network.
fn owner(root: &Path, address: IpAddr) -> Option<String> {
    match address {
        IpAddr::V4(address) => route(root, address),
        IpAddr::V6(address) => holder(root, &address.octets()),
    }
}

/// Returns the topology of the cards that receive these packets together.
pub fn nic_topology<'a>(
    root: &Path,
    paths: impl IntoIterator<Item = NetworkPath<'a>>,
) -> NicTopology {
    let mut cards: BTreeSet<String> = BTreeSet::new();
    for path in paths {
        cards.extend(cards_of(root, path.interface, path.address));
    }
    let nodes: BTreeSet<Option<u32>> =
        cards.iter().map(|card| node_of(&device(root, card))).collect();
    let node = if nodes.len() == 1 { nodes.first().copied().flatten() } else { None };
    let interrupts = cards.iter().flat_map(|card| interrupts(root, card)).collect();
    NicTopology { cards: cards.into_iter().collect(), node, interrupts }
}

fn device(root: &Path, card: &str) -> std::path::PathBuf {
    root.join("sys/class/net").join(card).join("device")
}

/// Returns the cards that may feed a socket: the named card, or the one with its address, or else all that are up.
fn cards_of(root: &Path, interface: Option<&str>, address: IpAddr) -> Vec<String> {
    let real = |card: &String| !card.contains('/') && device(root, card).exists();
    if let Some(name) = interface {
        // The cards below a VLAN or a bond feed it.
        let name = name.to_owned();
        let below = lower(root, &name);
        return std::iter::once(name).chain(below).filter(real).collect();
    }
    if address.is_loopback() {
        return Vec::new();
    }
    let owner = owner(root, address);
    if let Some(name) = owner.filter(|_| !address.is_unspecified() && !address.is_multicast()) {
        let below = lower(root, &name);
        return std::iter::once(name).chain(below).filter(real).collect();
    }
    let names = entries(&root.join("sys/class/net")).into_iter().take(MOST_CARDS);
    let names = names.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
    let up = |card: &String| {
        let state = text(&root.join("sys/class/net").join(card).join("operstate"));
        state.is_none_or(|state| state == "up")
    };
    names.filter(real).filter(up).collect()
}

/// Returns the interfaces below another one.
fn lower(root: &Path, name: &str) -> Vec<String> {
    if name.contains('/') {
        return Vec::new();
    }
    let names = entries(&root.join("sys/class/net").join(name)).into_iter();
    let names = names.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
    names.filter_map(|name| Some(name.strip_prefix("lower_")?.to_owned())).collect()
}

/// Returns the interface whose network contains an IPv4 address, by the kernel's routes: the narrowest without a
/// gateway.
fn route(root: &Path, address: Ipv4Addr) -> Option<String> {
    let table = text(&root.join("proc/net/route"))?;
    // The file has addresses as numbers in the machine's own byte order.
    let number = |hex: &str| Some(u32::from_str_radix(hex, 16).ok()?.to_ne_bytes());
    let address = u32::from(address);
    let matching = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (network, mask) = (number(fields.get(1)?)?, number(fields.get(7)?)?);
        let (network, mask) = (u32::from_be_bytes(network), u32::from_be_bytes(mask));
        let direct = *fields.get(2)? == "00000000" && mask != 0;
        (direct && address & mask == network).then(|| (mask.count_ones(), fields[0].to_owned()))
    });
    matching.max().map(|(_, name)| name)
}

/// Returns the interface that has an IPv6 address.
fn holder(root: &Path, address: &[u8; 16]) -> Option<String> {
    let table = text(&root.join("proc/net/if_inet6"))?;
    let hex: String = address.iter().map(|byte| format!("{byte:02x}")).collect();
    let line = table.lines().find(|line| line.starts_with(&hex))?;
    line.split_whitespace().last().map(str::to_owned)
}

/// Returns the cores that handle a card's interrupts, and those that its packets are steered to.
fn interrupts(root: &Path, card: &str) -> BTreeSet<usize> {
    let mut cpus = BTreeSet::new();
    let messages = above(&device(root, card), "msi_irqs").map(|path| entries(&path));
    for irq in messages.unwrap_or_default() {
        let Some(irq) = irq.file_name() else { continue };
        let irq = root.join("proc/irq").join(irq);
        // The actual affinity, or else the permitted one.
        let effective = list(&irq.join("effective_affinity_list"));
        match effective.is_empty() {
            true => cpus.extend(list(&irq.join("smp_affinity_list"))),
            false => cpus.extend(effective),
        }
    }
    for queue in entries(&root.join("sys/class/net").join(card).join("queues")) {
        cpus.extend(text(&queue.join("rps_cpus")).map_or(Vec::new(), |mask| in_mask(&mask)));
    }
    cpus
}

/// Parses a mask of processors in the kernel's form: hexadecimal words of 32 bits, the highest first.
fn in_mask(mask: &str) -> Vec<usize> {
    let mut cpus = Vec::new();
    for (word, hex) in mask.trim().rsplit(',').enumerate().take(MOST_CPUS / 32) {
        let Ok(bits) = u32::from_str_radix(hex.trim(), 16) else { return Vec::new() };
        cpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| word * 32 + bit));
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_read_as_the_kernel_writes_them() {
        assert_eq!(in_mask("3"), [0, 1]);
        assert_eq!(in_mask("00000001,80000000\n"), [31, 32]);
        assert_eq!(in_mask("00000000,00000000"), [0; 0]);
        assert_eq!(in_mask("x"), [0; 0]);
    }
}
