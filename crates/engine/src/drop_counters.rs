//! Drop counters of the layers between wire and socket, read before and after a scan.
//!
//! A counter that this host does not have cannot move: a container may lack `softnet_stat`, an interface may lack a
//! statistic. A counter that exists and cannot be read, or that exists at one end of a scan only, may have moved
//! unnoticed. It is reported as unavailable, and the scan then has no proof.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::Path;

use fullbore_core::account::{DropCounter, Layer, UnavailableCounter};

/// Counters of an interface that move when the interface loses received packets.
const DEVICE_COUNTERS: [&str; 4] =
    ["rx_dropped", "rx_missed_errors", "rx_fifo_errors", "rx_over_errors"];

/// Key of a counter: its layer, its scope (interface, CPU or protocol) and its name. An empty scope and an empty name
/// stand for a whole layer that could not be read.
type Key = (Layer, String, String);

/// A snapshot of the counters that several streams share. Each has its value, or the reason why it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterSnapshot {
    counters: BTreeMap<Key, Result<u64, String>>,
}

impl CounterSnapshot {
    /// Reads all counters. `root` is `/` except in tests.
    pub fn take(root: &Path) -> Self {
        let mut reading = Self::default();
        reading.devices(&root.join("sys/class/net"));
        reading.backlog(&root.join("proc/net/softnet_stat"));
        reading.checksums(root);
        reading
    }

    /// Returns the counters on the way to `address` that moved, or may have moved, between this reading and a later
    /// one, and the counters that could not be read.
    pub fn until(
        &self,
        later: &CounterSnapshot,
        address: IpAddr,
        interface: Option<&str>,
    ) -> (Vec<DropCounter>, Vec<UnavailableCounter>) {
        let concerns = |key: &&Key| match (key.0, interface) {
            (Layer::Device, _) if key.1.is_empty() => true,
            (Layer::Device, Some(name)) => key.1 == name,
            // Packets that this host sends to one of its own addresses go through the loopback interface.
            (Layer::Device, None) => !address.is_loopback() || key.1 == "lo",
            _ => true,
        };
        let (mut drop_counters, mut unavailable) = (Vec::new(), BTreeSet::new());
        let keys: BTreeSet<&Key> = self.counters.keys().chain(later.counters.keys()).collect();
        for key in keys.into_iter().filter(concerns) {
            let (layer, scope, counter) = key.clone();
            let why = match (self.counters.get(key), later.counters.get(key)) {
                (Some(Ok(before)), Some(Ok(after))) => {
                    let (before, after) = (*before, *after);
                    let (own, coarse) = (false, false);
                    drop_counters.push(DropCounter {
                        layer,
                        counter,
                        scope,
                        own,
                        coarse,
                        before,
                        after,
                    });
                    continue;
                }
                (Some(Err(why)), _) | (_, Some(Err(why))) => why.clone(),
                // Reported once, for the layer.
                _ if self.is_blind(layer) || later.is_blind(layer) => continue,
                // The counter appeared while the scan ran and has counted nothing since.
                (None, Some(Ok(0))) => continue,
                (None, _) => "it was not there when the scan was armed".to_owned(),
                (Some(_), None) => "it is no longer there".to_owned(),
            };
            unavailable.insert(UnavailableCounter { layer, scope, why });
        }
        (drop_counters, unavailable.into_iter().collect())
    }

    /// True if a whole layer could not be read.
    fn is_blind(&self, layer: Layer) -> bool {
        self.counters.contains_key(&(layer, String::new(), String::new()))
    }

    fn note(&mut self, layer: Layer, scope: &str, counter: &str, value: Result<u64, String>) {
        self.counters.insert((layer, scope.to_owned(), counter.to_owned()), value);
    }

    /// Notes that a layer could not be read, unless it does not exist.
    fn failed(&mut self, layer: Layer, path: &Path, error: &io::Error) {
        if !is_absent(error) {
            self.note(layer, "", "", Err(format!("{}: {error}", path.display())));
        }
    }

    fn devices(&mut self, directory: &Path) {
        let entries =
            std::fs::read_dir(directory).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => return self.failed(Layer::Device, directory, &error),
        };
        for entry in entries {
            let interface = entry.file_name().to_string_lossy().into_owned();
            for counter in DEVICE_COUNTERS {
                let path = entry.path().join("statistics").join(counter);
                if let Some(value) = number(&path) {
                    self.note(Layer::Device, &interface, counter, value);
                }
            }
        }
    }

    /// Reads `softnet_stat`: one hexadecimal line for each CPU that is online. The second column counts drops of the
    /// backlog queue, the thirteenth is the CPU number.
    fn backlog(&mut self, path: &Path) {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => return self.failed(Layer::Backlog, path, &error),
        };
        for (number, line) in text.lines().enumerate() {
            let mut columns = line.split_whitespace().map(|hex| u64::from_str_radix(hex, 16));
            let dropped = columns.nth(1).and_then(Result::ok);
            let cpu = columns.nth(10).and_then(Result::ok).unwrap_or(number as u64);
            let value = dropped.ok_or_else(|| format!("`{line}` has no drop count"));
            self.note(Layer::Backlog, &format!("cpu{cpu}"), "dropped", value);
        }
    }

    /// Reads the numbers of IPv4 and IPv6 datagrams dropped for a wrong checksum.
    fn checksums(&mut self, root: &Path) {
        let count = |text: Option<&str>| {
            let text = text?;
            Some(text.parse::<u64>().map_err(|_| format!("`{text}` is no number")))
        };
        let path = root.join("proc/net/snmp");
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
                let names = lines.next().unwrap_or_default().split_whitespace();
                let values = lines.next().unwrap_or_default().split_whitespace();
                let found = names.zip(values).find(|(name, _)| *name == "InCsumErrors");
                if let Some(value) = count(found.map(|(_, value)| value)) {
                    self.note(Layer::Udp, "ipv4", "InCsumErrors", value);
                }
            }
            Err(error) => self.failed(Layer::Udp, &path, &error),
        }
        let path = root.join("proc/net/snmp6");
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let found = text.lines().find_map(|line| line.strip_prefix("Udp6InCsumErrors"));
                if let Some(value) = count(found.map(str::trim)) {
                    self.note(Layer::Udp, "ipv6", "InCsumErrors", value);
                }
            }
            Err(error) => self.failed(Layer::Udp, &path, &error),
        }
    }
}

/// Returns the number in a file, or the reason why it cannot be read; `None` if the file does not exist.
fn number(path: &Path) -> Option<Result<u64, String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let text = text.trim();
            Some(text.parse().map_err(|_| format!("{}: `{text}` is no number", path.display())))
        }
        Err(error) if is_absent(&error) => None,
        Err(error) => Some(Err(format!("{}: {error}", path.display()))),
    }
}

/// Some entries beside the interfaces are files.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
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
        let (before, after) =
            (CounterSnapshot::take(before.path()), CounterSnapshot::take(after.path()));
        let moved = |address: &str| {
            let (drop_counters, unavailable) = before.until(&after, address.parse().unwrap(), None);
            assert_eq!(unavailable, []);
            let moved = drop_counters.into_iter().filter(|w| w.moved() > 0);
            moved.map(|w| (w.scope.clone(), w.moved())).collect::<Vec<_>>()
        };
        assert_eq!(moved("10.0.0.1"), [("eth0".to_owned(), 5), ("cpu1".to_owned(), 2)]);
        let scopes = |address: &str| {
            let (drop_counters, _) = before.until(&after, address.parse().unwrap(), None);
            drop_counters.iter().filter(|w| w.layer == Layer::Device).count()
        };
        assert_eq!((scopes("10.0.0.1"), scopes("127.0.0.1")), (2, 1), "its own sender comes by lo");
        assert_eq!(moved("127.0.0.1"), [("cpu1".to_owned(), 2)], "eth0 is no way to loopback");
    }

    /// Describes the counters that are unavailable between two trees.
    fn unavailable(
        before: &Path,
        after: &Path,
        address: &str,
        interface: Option<&str>,
    ) -> Vec<String> {
        let (before, after) = (CounterSnapshot::take(before), CounterSnapshot::take(after));
        let (_, unavailable) = before.until(&after, address.parse().unwrap(), interface);
        unavailable.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_counter_that_is_there_at_one_end_only_is_unread_and_one_that_never_was_is_none() {
        let [before, after] = [(); 2].map(|()| tree(4, "00000007 00000000 0\n"));
        let unavailable = |address, interface| {
            let both = unavailable(before.path(), after.path(), address, interface);
            both.join("\n")
        };
        std::fs::remove_file(before.path().join("proc/net/snmp")).unwrap();
        std::fs::remove_file(after.path().join("proc/net/snmp")).unwrap();
        assert_eq!(unavailable("10.0.0.1", None), "", "this host does not count checksums");
        let statistics = "sys/class/net/eth0/statistics";
        std::fs::remove_dir_all(after.path().join(statistics)).unwrap();
        let gone = "device eth0: what it lost is not known: it is no longer there";
        assert_eq!(unavailable("10.0.0.1", None), gone);
        assert_eq!(unavailable("10.0.0.1", Some("lo")), "", "it is not on the way");
        assert_eq!(unavailable("127.0.0.1", None), "");
        std::fs::remove_dir_all(before.path().join("sys/class/net/lo/statistics")).unwrap();
        assert_eq!(unavailable("127.0.0.1", None), "", "it came, and has lost nothing");
        let told = after.path().join("sys/class/net/lo/statistics/rx_dropped");
        std::fs::write(told, "7\n").unwrap();
        let new = "device lo: what it lost is not known: it was not there when the scan was armed";
        assert_eq!(unavailable("127.0.0.1", None), new);
    }

    #[test]
    fn a_counter_that_cannot_be_read_is_named_with_its_reason() {
        let [before, after] = [(); 2].map(|()| tree(4, "00000007 00000000 0\n"));
        let dropped = after.path().join("sys/class/net/lo/statistics/rx_dropped");
        std::fs::write(&dropped, "many\n").unwrap();
        let softnet = after.path().join("proc/net/softnet_stat");
        std::fs::remove_file(&softnet).unwrap();
        // A directory exists and no user can read it as a file.
        std::fs::create_dir(&softnet).unwrap();
        let told = unavailable(before.path(), after.path(), "127.0.0.1", None);
        let [device, backlog] = &told[..] else { panic!("{told:?}") };
        assert!(device.starts_with("device lo: ") && device.ends_with("`many` is no number"));
        assert!(backlog.starts_with("backlog: ") && backlog.contains("softnet_stat: "), "{told:?}");
    }

    #[test]
    fn the_backlog_of_a_cpu_is_found_by_its_number_when_others_go_offline() {
        let line =
            |dropped: u32, cpu: u32| format!("7 {dropped:08x} 0 0 0 0 0 0 0 0 0 0 {cpu:08x} 0 0\n");
        let before = tree(4, &[line(1, 0), line(2, 1), line(3, 2)].concat());
        let after = tree(4, &[line(1, 0), line(5, 2)].concat());
        let (before, after) =
            (CounterSnapshot::take(before.path()), CounterSnapshot::take(after.path()));
        let (drop_counters, unavailable) = before.until(&after, "127.0.0.1".parse().unwrap(), None);
        let moved: Vec<_> = drop_counters.iter().filter(|w| w.moved() > 0).collect();
        assert_eq!((moved.len(), moved[0].scope.as_str(), moved[0].moved()), (1, "cpu2", 2));
        assert_eq!((unavailable.len(), unavailable[0].scope.as_str()), (1, "cpu1"));
    }
}
