//! The counters of the layers between wire and socket, read before and after.

use std::net::IpAddr;
use std::path::Path;

use fullbore_core::account::{Layer, Witness};

/// Counters of an interface that move when it loses what was received.
const DEVICE_COUNTERS: [&str; 4] =
    ["rx_dropped", "rx_missed_errors", "rx_fifo_errors", "rx_over_errors"];

/// One reading of the counters that several streams share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    counters: Vec<(Layer, String, String, u64)>,
}

impl Reading {
    /// Reads every counter there is. `root` is `/` but for tests.
    pub fn take(root: &Path) -> Self {
        let mut counters = Vec::new();
        devices(root, &mut counters);
        backlog(root, &mut counters);
        checksums(root, &mut counters);
        Self { counters }
    }

    /// What moved, or could have, from this reading to a later one, on the way to `address`.
    pub fn until(&self, later: &Reading, address: IpAddr, interface: Option<&str>) -> Vec<Witness> {
        let concerns = |layer: Layer, scope: &str| match layer {
            Layer::Device => match interface {
                Some(name) => scope == name,
                // What this host sends to an address of its own goes through the loopback, whatever it is.
                None => !address.is_loopback() || scope == "lo",
            },
            _ => true,
        };
        let before = |layer: Layer, name: &str, scope: &str| {
            let same =
                |c: &&(Layer, String, String, u64)| c.0 == layer && c.1 == name && c.2 == scope;
            self.counters.iter().find(same).map(|c| c.3)
        };
        let mut witnesses = Vec::new();
        for (layer, counter, scope, after) in &later.counters {
            let Some(before) = before(*layer, counter, scope) else { continue };
            if concerns(*layer, scope) {
                witnesses.push(Witness {
                    layer: *layer,
                    counter: counter.clone(),
                    scope: scope.clone(),
                    own: false,
                    coarse: false,
                    before,
                    after: *after,
                });
            }
        }
        witnesses
    }
}

type Counters = Vec<(Layer, String, String, u64)>;

fn devices(root: &Path, counters: &mut Counters) {
    let Ok(entries) = std::fs::read_dir(root.join("sys/class/net")) else { return };
    for entry in entries.flatten() {
        let interface = entry.file_name().to_string_lossy().into_owned();
        for counter in DEVICE_COUNTERS {
            let path = entry.path().join("statistics").join(counter);
            if let Some(value) = number(&path) {
                counters.push((Layer::Device, counter.to_owned(), interface.clone(), value));
            }
        }
    }
    counters.sort();
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// `softnet_stat`: one line a CPU, hexadecimal; the second column counts drops of the backlog queue.
fn backlog(root: &Path, counters: &mut Counters) {
    let Ok(text) = std::fs::read_to_string(root.join("proc/net/softnet_stat")) else { return };
    for (number, line) in text.lines().enumerate() {
        let dropped =
            line.split_whitespace().nth(1).and_then(|hex| u64::from_str_radix(hex, 16).ok());
        if let Some(dropped) = dropped {
            counters.push((Layer::Backlog, "dropped".into(), format!("cpu{number}"), dropped));
        }
    }
}

/// Datagrams thrown away for a wrong checksum, of IPv4 and IPv6.
fn checksums(root: &Path, counters: &mut Counters) {
    if let Ok(text) = std::fs::read_to_string(root.join("proc/net/snmp")) {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
        if let (Some(names), Some(values)) = (lines.next(), lines.next()) {
            let mut pairs = names.split_whitespace().zip(values.split_whitespace());
            let found = pairs.find(|(name, _)| *name == "InCsumErrors");
            if let Some(value) = found.and_then(|(_, value)| value.parse().ok()) {
                counters.push((Layer::Udp, "InCsumErrors".into(), "ipv4".into(), value));
            }
        }
    }
    if let Ok(text) = std::fs::read_to_string(root.join("proc/net/snmp6")) {
        let line = text.lines().find_map(|line| line.strip_prefix("Udp6InCsumErrors"));
        if let Some(value) = line.and_then(|value| value.trim().parse().ok()) {
            counters.push((Layer::Udp, "InCsumErrors".into(), "ipv6".into(), value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(dropped: u64, softnet: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for interface in ["lo", "eth0"] {
            let path = root.path().join("sys/class/net").join(interface).join("statistics");
            std::fs::create_dir_all(&path).unwrap();
            let value = if interface == "eth0" { dropped } else { 0 };
            std::fs::write(path.join("rx_dropped"), format!("{value}\n")).unwrap();
        }
        std::fs::create_dir_all(root.path().join("proc/net")).unwrap();
        std::fs::write(root.path().join("proc/net/softnet_stat"), softnet).unwrap();
        let snmp = "Udp: InDatagrams InCsumErrors\nUdp: 7 3\n";
        std::fs::write(root.path().join("proc/net/snmp"), snmp).unwrap();
        root
    }

    #[test]
    fn what_moved_is_found_where_the_stream_came_through() {
        let before = tree(4, "00000007 00000000 0\n00000007 0000000a 0\n");
        let after = tree(9, "00000007 00000000 0\n00000007 0000000c 0\n");
        let (before, after) = (Reading::take(before.path()), Reading::take(after.path()));
        let moved = |address: &str| {
            let witnesses = before.until(&after, address.parse().unwrap(), None);
            let moved = witnesses.into_iter().filter(|w| w.moved() > 0);
            moved.map(|w| (w.scope.clone(), w.moved())).collect::<Vec<_>>()
        };
        assert_eq!(moved("10.0.0.1"), [("eth0".to_owned(), 5), ("cpu1".to_owned(), 2)]);
        let scopes = |address: &str| {
            let witnesses = before.until(&after, address.parse().unwrap(), None);
            witnesses.iter().filter(|w| w.layer == Layer::Device).count()
        };
        assert_eq!((scopes("10.0.0.1"), scopes("127.0.0.1")), (2, 1), "its own sender comes by lo");
        assert_eq!(moved("127.0.0.1"), [("cpu1".to_owned(), 2)], "eth0 is no way to loopback");
    }
}
