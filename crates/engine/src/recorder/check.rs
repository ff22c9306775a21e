//! Checks of a configuration before anything is opened: names, cores, times, block sizes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use fullbore_core::account::CountedBy;
use fullbore_core::affinity::AffinityPolicy;
use fullbore_core::endpoint::UdpSource;
use fullbore_core::layout::BLOCK_BYTES;
use fullbore_core::name::Name;
use fullbore_core::units::ByteSize;
use fullbore_device as device;
use fullbore_linux::clock::Clock;
use fullbore_linux::sys::sched;

use super::config::RecordingConfig;
use crate::error::RecordError;
use crate::sink::device::DeviceConfig;
use crate::sink::{Needs, SinkConfig};
use crate::source::SourceConfig;

/// The size of the largest chunk file.
const LARGEST_CHUNK_BYTES: u64 = 64 << 30;

/// Refuses sources with the same name, cores that threads cannot run on, and an end that has passed.
pub(super) fn check(config: &RecordingConfig) -> Result<(), RecordError> {
    if config.sources.is_empty() {
        return Err(RecordError::NoSource);
    }
    let identities: Vec<_> = config.sources.iter().map(|source| source.identity()).collect();
    refuse_twins(config, &identities)?;
    refuse_shared_ports(config)?;
    let mut names: BTreeSet<&Name> = BTreeSet::new();
    for name in config.sources.iter().map(|source| source.name()) {
        if !names.insert(name) {
            return Err(RecordError::SameName { name: name.clone() });
        }
    }
    check_sinks(config)?;
    check_cpus(&config.place)?;
    if let Some(until) = config.limit.until
        && until <= Clock::new().now()
    {
        return Err(RecordError::Past { until });
    }
    Ok(())
}

/// Refuses a recording without a sink, sinks that are one, and streams that a sink cannot record.
fn check_sinks(config: &RecordingConfig) -> Result<(), RecordError> {
    if config.sinks.is_empty() {
        return Err(RecordError::NoSink);
    }
    refuse_same_place(&config.sinks)?;
    for sink in &config.sinks {
        match sink {
            SinkConfig::Device(devices) => check_devices(config, devices)?,
            SinkConfig::File(_) if config.sources.len() > 1 => {
                return Err(RecordError::OneStream { sources: config.sources.len() });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Refuses two sinks that write to one place. A sink refuses a place that it has twice itself.
fn refuse_same_place(sinks: &[SinkConfig]) -> Result<(), RecordError> {
    let mut taken: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for (number, sink) in sinks.iter().enumerate() {
        for path in sink.places() {
            if *taken.entry(resolved(&path)).or_insert(number) != number {
                return Err(RecordError::SamePlace { path });
            }
        }
    }
    Ok(())
}

/// A path without links, also of a file that does not exist yet.
fn resolved(path: &Path) -> PathBuf {
    let by_folder = || {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(folder.join(path.file_name()?))
    };
    path.canonicalize().ok().or_else(by_folder).unwrap_or_else(|| path.to_owned())
}

/// Refuses streams that devices cannot record: each device takes one stream of frames of one length.
fn check_devices(config: &RecordingConfig, to: &DeviceConfig) -> Result<(), device::Error> {
    if config.scans.len() > 1 {
        return Err(device::Error::Series);
    }
    if config.sources.iter().any(|source| source.has_varying_frames()) {
        return Err(device::Error::Varying);
    }
    if !config.sources.iter().all(|source| source.is_known()) {
        return Err(device::Error::Streams { streams: 2 });
    }
    match (config.sources.len(), to.devices.len()) {
        (streams, devices) if streams == devices => Ok(()),
        (streams, devices) => Err(device::Error::NotPaired { streams, devices }),
    }
}

/// Refuses two sources that are one. The list has the identity of each source, if it has one.
pub(super) fn refuse_twins(
    config: &RecordingConfig,
    identities: &[Option<String>],
) -> Result<(), RecordError> {
    for (second, identity) in identities.iter().enumerate().filter(|(_, it)| it.is_some()) {
        if let Some(first) = identities[..second].iter().position(|it| it == identity) {
            let named = |at: usize| config.sources[at].endpoint();
            return Err(RecordError::SameSource { first: named(first), second: named(second) });
        }
    }
    Ok(())
}

/// Refuses two sources that would listen on the same port of this host.
fn refuse_shared_ports(config: &RecordingConfig) -> Result<(), RecordError> {
    let udp = config.sources.iter().filter_map(|source| match source {
        SourceConfig::Udp(source) => Some(source.as_ref()),
        _ => None,
    });
    let mut known: Vec<&UdpSource> = Vec::new();
    for second in udp {
        if let Some(first) = known.iter().find(|first| share_a_port(first, second)) {
            let (port, named) = (second.address.port(), |it: &UdpSource| it.endpoint.to_string());
            return Err(RecordError::SamePort { port, first: named(first), second: named(second) });
        }
        known.push(second);
    }
    Ok(())
}

/// True if the kernel gives the port to one of these sources only. Sources share the port of a multicast group, and each
/// address and each interface has its own ports.
fn share_a_port(one: &UdpSource, other: &UdpSource) -> bool {
    let (left, right) = (one.address.ip(), other.address.ip());
    let any = |it: IpAddr| it.is_unspecified();
    let of_one_address =
        left == right || (left.is_ipv4() == right.is_ipv4() && (any(left) || any(right)));
    let of_one_interface = match (&one.interface, &other.interface) {
        (Some(left), Some(right)) => left == right,
        _ => true,
    };
    one.address.port() == other.address.port()
        && ![left, right].iter().any(IpAddr::is_multicast)
        && of_one_address
        && of_one_interface
}

/// Returns the known demands of the recording on its sink.
pub(super) fn needs(config: &RecordingConfig) -> Needs {
    let blocks = config.sources.iter().map(|source| source.most_block_bytes());
    let frames = config.sources.iter().filter(|source| source.counted_by() != CountedBy::Bytes);
    Needs {
        streams: config.sources.len().max(1) as u64,
        block_bytes: blocks.max().unwrap_or(BLOCK_BYTES),
        least_block_bytes: frames.map(|source| source.most_block_bytes()).min(),
        rate: config.sources.iter().filter_map(|source| source.rate()).sum(),
        bytes: config.limit.bytes.unwrap_or(0).saturating_mul(config.scans.len() as u64),
        lasts: config.lasts(Clock::new().now()),
        bytes_of_each: config.limit.bytes_of_each(config.sources.len()),
        source_bytes: config.sources.iter().map(|source| source.bytes()).collect(),
    }
}

/// Refuses cores that the machine lacks, or that this process may not use.
fn check_cpus(wish: &AffinityPolicy) -> Result<(), RecordError> {
    // A separate thread tries it: an isolated core may be allowed although nothing runs there yet.
    let may = |cpu: &usize| {
        let tried = std::thread::scope(|scope| scope.spawn(|| sched::stay_on(&[*cpu])).join());
        tried.is_ok_and(|tried| tried.is_ok())
    };
    match wish.cpus().find(|cpu| !may(cpu)) {
        None => Ok(()),
        Some(cpu) => {
            let allowed = sched::allowed().map_err(RecordError::Thread)?;
            let all: Vec<String> = allowed.iter().map(usize::to_string).collect();
            Err(RecordError::Cpu { cpu, allowed: all.join(", ") })
        }
    }
}

/// Refuses chunks that are smaller than a block of a source, or too large.
pub(super) fn check_chunk(config: &RecordingConfig, pool_sizes: &[u64]) -> Result<(), RecordError> {
    let mut chunks = config.sinks.iter().filter_map(|sink| sink.store()?.chunk);
    let pools = config.sources.iter().zip(pool_sizes);
    let least = pools.map(|(source, bytes)| source.least_chunk_bytes(*bytes)).max().unwrap_or(0);
    match chunks.find(|chunk| !(least..=LARGEST_CHUNK_BYTES).contains(&chunk.0)) {
        None => Ok(()),
        Some(chunk) => {
            let (least, most) = (ByteSize(least), ByteSize(LARGEST_CHUNK_BYTES));
            Err(RecordError::Chunk { chunk, least, most })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_shared_only_by_groups_and_by_different_addresses_and_interfaces() {
        let of = |text: &str| UdpSource::parse(text).unwrap().remove(0);
        let shared = |one: &str, other: &str| share_a_port(&of(one), &of(other));
        assert!(shared("udp://127.0.0.1:46350?name=a", "udp://127.0.0.1:46350?name=b"));
        assert!(shared("udp://:46350?name=a", "udp://127.0.0.1:46350?name=b"));
        assert!(shared("udp://127.0.0.1:5000?interface=lo", "udp://127.0.0.1:5000"));
        assert!(!shared("udp://127.0.0.1:46350", "udp://127.0.0.1:46351"));
        assert!(!shared("udp://127.0.0.1:46350", "udp://127.0.0.2:46350"));
        assert!(!shared(
            "udp://127.0.0.1:5000?interface=lo",
            "udp://127.0.0.1:5000?interface=eth0"
        ));
        assert!(!shared("udp://239.1.1.1:46350?name=a", "udp://239.1.1.1:46350?name=b"));
        assert!(!shared("udp://239.1.1.1:46350", "udp://:46350"));
    }
}
