//! Checks of a configuration before anything is opened: names, cores, times, block sizes.

use std::collections::BTreeSet;

use fullbore_core::account::CountedBy;
use fullbore_core::affinity::AffinityPolicy;
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

/// The size of the largest chunk file.
const LARGEST_CHUNK_BYTES: u64 = 64 << 30;

/// Refuses sources with the same name, cores that threads cannot run on, and an end that has passed.
pub(super) fn check(config: &RecordingConfig) -> Result<(), RecordError> {
    if config.sources.is_empty() {
        return Err(RecordError::NoSource);
    }
    let identities: Vec<_> = config.sources.iter().map(|source| source.identity()).collect();
    refuse_twins(config, &identities)?;
    let mut names: BTreeSet<&Name> = BTreeSet::new();
    for name in config.sources.iter().map(|source| source.name()) {
        if !names.insert(name) {
            return Err(RecordError::SameName { name: name.clone() });
        }
    }
    if let SinkConfig::Device(devices) = &config.sink {
        check_devices(config, devices)?;
    }
    if let SinkConfig::File(_) = config.sink
        && config.sources.len() > 1
    {
        return Err(RecordError::OneStream { sources: config.sources.len() });
    }
    check_cpus(&config.place)?;
    if let Some(until) = config.limit.until
        && until <= Clock::new().now()
    {
        return Err(RecordError::Past { until });
    }
    Ok(())
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
    let Some(chunk) = config.sink.store().and_then(|store| store.chunk) else { return Ok(()) };
    let pools = config.sources.iter().zip(pool_sizes);
    let least = pools.map(|(source, bytes)| source.least_chunk_bytes(*bytes)).max().unwrap_or(0);
    if (least..=LARGEST_CHUNK_BYTES).contains(&chunk.0) {
        return Ok(());
    }
    Err(RecordError::Chunk { chunk, least: ByteSize(least), most: ByteSize(LARGEST_CHUNK_BYTES) })
}
