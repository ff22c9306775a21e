//! The size of a recording's block memory: its budget, the requested size, or a default.

use fullbore_core::layout::BLOCK_BYTES;
use fullbore_core::memory_budget::{Backlog, BudgetInputs, DiskRate, MemoryBudget, Stall};
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_linux::clock::Clock;
use fullbore_store as store;

use super::check::check_chunk;
use super::config::RecordingConfig;
use crate::error::RecordError;
use crate::event::{Event, EventHandler, Memory};
use crate::sink::SinkConfig;
use crate::source::{MemoryNeeds, SourceConfig};

/// Default block memory of all sources that cannot wait together, if no rate is known.
const POOL_BYTES: u64 = 2 << 30;

/// Returns the sources whose sender does not wait: they share the memory budget.
fn unpaused(plan: &RecordingConfig) -> impl Iterator<Item = &SourceConfig> + Clone {
    plan.sources.iter().filter(|source| matches!(source.memory(), MemoryNeeds::ForStall { .. }))
}

/// Returns the budget inputs of these sources, if each states its rate. All get the same share, so each is budgeted as
/// the fastest. A backlog that the memory cannot hold is not budgeted: the recording loses frames either way.
fn budget_inputs(plan: &RecordingConfig, available: u64) -> Option<BudgetInputs> {
    let mut inputs = demand_with_backlog(plan)?;
    if inputs.backlog.is_some() && inputs.sum().bytes > available {
        inputs.backlog = None;
    }
    Some(inputs)
}

/// What a sink holds of the memory.
struct Holding {
    members: u64,
    /// Bytes of writes in flight on each member.
    depth_bytes: u64,
    stall: Stall,
}

/// Returns what a sink holds, if it is known.
fn holding(sink: &SinkConfig) -> Option<Holding> {
    let (members, depth_bytes, stall) = match sink {
        SinkConfig::Store(store) => {
            let depth_bytes = store::Settings::of_member(0).depth_bytes;
            (store.members.len(), depth_bytes, store.stall.clone())
        }
        SinkConfig::Device(to) => {
            let depth = to.devices.iter().map(|device| device.end.depth()).max().unwrap_or(0);
            (to.devices.len(), depth * BLOCK_BYTES, None)
        }
        // A container keeps blocks for longer than a disk needs to write them.
        #[cfg(feature = "hdf5")]
        SinkConfig::Container(_) => return None,
        SinkConfig::File(_) | SinkConfig::Discard => return None,
    };
    let stall = stall.unwrap_or_else(Stall::assumed);
    Some(Holding { members: members as u64, depth_bytes, stall })
}

/// Adds what several sinks hold. A block passes them one after the other, and each may stall.
fn together(holdings: Vec<Holding>) -> Option<Holding> {
    holdings.into_iter().reduce(|one, other| Holding {
        members: one.members + other.members,
        depth_bytes: one.depth_bytes.max(other.depth_bytes),
        stall: Stall {
            ms: one.stall.ms.saturating_add(other.stall.ms),
            measured: one
                .stall
                .measured
                .zip(other.stall.measured)
                .map(|(a, b)| if a == b { a } else { format!("{a} and {b}") }),
        },
    })
}

fn demand_with_backlog(plan: &RecordingConfig) -> Option<BudgetInputs> {
    let holdings = plan.sinks.iter().map(holding).collect::<Option<Vec<Holding>>>()?;
    let Holding { members, depth_bytes, stall } = together(holdings)?;
    // The slowest disks hold the others back.
    let disk_rates = plan.sinks.iter().filter_map(|sink| sink.store()?.disk_rate.as_ref());
    let disk_rate = disk_rates.min_by_key(|disks| disks.rate);
    let rates: Option<Vec<u64>> = unpaused(plan).map(|source| source.rate()).collect();
    let rates = rates?;
    let fastest = *rates.iter().max()?;
    let sources = unpaused(plan).count() as u64;
    let blocks = unpaused(plan).map(|source| match source.memory() {
        MemoryNeeds::ForStall { block_bytes, .. } => block_bytes,
        MemoryNeeds::Fixed { .. } => 0,
    });
    Some(BudgetInputs {
        sources,
        rate: ByteRate(fastest.saturating_mul(sources)),
        block_bytes: blocks.max().unwrap_or(BLOCK_BYTES),
        members,
        depth_bytes,
        stall,
        backlog: disk_rate.and_then(|disks| backlog(plan, &rates, disks)),
    })
}

/// Returns the data that the disks are too slow for. A series without pauses counts as one scan.
fn backlog(plan: &RecordingConfig, rates: &[u64], disks: &DiskRate) -> Option<Backlog> {
    let begin = plan.start.unwrap_or_else(|| Clock::new().now());
    let rate = rates.iter().fold(0u64, |sum, rate| sum.saturating_add(*rate));
    let backlog = Backlog::of(ByteRate(rate), disks, plan.lasts(begin)?, plan.pause)?;
    // All sources get the same share, so each is budgeted as the fastest.
    let shares = u128::from(*rates.iter().max()?) * rates.len() as u128;
    let bytes = u128::from(backlog.bytes) * shares / u128::from(rate);
    Some(Backlog { bytes: u64::try_from(bytes).unwrap_or(u64::MAX), ..backlog })
}

/// Returns a warning about disks that are slower than the sources, if memory or pause do not make up for it.
pub(super) fn slow_disks(plan: &RecordingConfig, available: u64) -> Option<String> {
    let inputs = demand_with_backlog(plan)?;
    let backlog = inputs.backlog.clone()?;
    let sources = format!(
        "the sources send {} and the disks write {} ({})",
        backlog.rate, backlog.disk_rate, backlog.measured
    );
    let memory = plan.buffer.map_or(available, |size| size.0);
    if inputs.rides_out_ms(memory) == 0 {
        return Some(format!(
            "{sources}: a scan of {} s needs {} of block memory, and there are {}: frames will be lost",
            backlog.record_ms as f64 / 1000.0,
            ByteSize(inputs.sum().bytes),
            ByteSize(memory)
        ));
    }
    let pause_ms = backlog.pause_ms.filter(|_| !backlog.drains)?;
    Some(format!(
        "{sources}: {} are left at the end of the scan and need {:.1} s, and the next scan is armed {:.1} s \
         after it: the next scan begins late",
        ByteSize(backlog.bytes),
        backlog.drain_s(),
        pause_ms as f64 / 1000.0
    ))
}

fn least_of(source: &SourceConfig) -> u64 {
    match source.memory() {
        MemoryNeeds::ForStall { least, .. } | MemoryNeeds::Fixed { least, .. } => least,
    }
}

/// Returns the least block memory of each source that cannot wait: less than usual if all are known to be slow.
fn least_share(plan: &RecordingConfig) -> u64 {
    unpaused(plan).map(least_of).max().unwrap_or(0)
}

/// Returns the block memory of all sources that cannot wait together.
fn wanted(plan: &RecordingConfig, available: u64) -> Result<u64, RecordError> {
    let sources = unpaused(plan).count() as u64;
    let least = sources.saturating_mul(least_share(plan));
    let wanted = match (plan.share(), budget_inputs(plan, available)) {
        (Some(share), _) => share.saturating_mul(sources),
        (None, Some(inputs)) => {
            let sum = inputs.sum();
            if sum.bytes > available {
                let (sum, available) = (Box::new(sum), ByteSize(available));
                return Err(RecordError::MemorySum { sum, available });
            }
            sum.bytes.max(least)
        }
        (None, None) => POOL_BYTES.min(available / 4).max(least),
    };
    limited(wanted, available)
}

/// Refuses more than the available memory.
fn limited(wanted: u64, available: u64) -> Result<u64, RecordError> {
    match wanted > available {
        true => {
            Err(RecordError::Memory { wanted: ByteSize(wanted), available: ByteSize(available) })
        }
        false => Ok(wanted),
    }
}

/// Returns the block memory of each source. Refuses less than a source needs, more than there is, and chunks that are
/// smaller than a block.
pub(super) fn pool_sizes(plan: &RecordingConfig, available: u64) -> Result<Vec<u64>, RecordError> {
    let share = match unpaused(plan).count() as u64 {
        0 => 0,
        sources => share_of(wanted(plan, available)?, sources, least_share(plan))?,
    };
    let sizes = plan.sources.iter().map(|source| match source.memory() {
        MemoryNeeds::ForStall { .. } => Ok(share),
        MemoryNeeds::Fixed { default, least } => {
            let wanted = plan.share().unwrap_or(fixed(plan, default));
            limited(share_of(wanted, 1, least)?, available)
        }
    });
    let sizes = sizes.collect::<Result<Vec<u64>, _>>()?;
    check_chunk(plan, &sizes)?;
    Ok(sizes)
}

/// Returns the share of each of these sources in the block memory.
fn share_of(wanted: u64, sources: u64, least: u64) -> Result<u64, RecordError> {
    let share = wanted / sources;
    match share < least {
        true => Err(RecordError::SmallBuffer {
            given: ByteSize(wanted),
            sources: sources as usize,
            least: ByteSize(least),
        }),
        false => Ok(share),
    }
}

/// Returns the default memory of a source that waits: each sink holds blocks, one after the other.
fn fixed(plan: &RecordingConfig, default: u64) -> u64 {
    default.saturating_mul(plan.sinks.len() as u64)
}

/// Returns the block memory of all sources that wait for blocks.
fn of_waiting(plan: &RecordingConfig) -> u64 {
    let fixed = plan.sources.iter().filter_map(|source| match source.memory() {
        MemoryNeeds::Fixed { default, .. } => Some(plan.share().unwrap_or(fixed(plan, default))),
        MemoryNeeds::ForStall { .. } => None,
    });
    fixed.fold(0, u64::saturating_add)
}

/// Reports the size of the block memory and its reason before any of it is allocated. Warns if less was requested than
/// the budget.
pub(super) fn tell_of_it(
    plan: &RecordingConfig,
    available: u64,
    tell: &mut EventHandler<'_>,
) -> Result<(), RecordError> {
    if unpaused(plan).next().is_none() {
        return Ok(());
    }
    let bytes = wanted(plan, available)?;
    let inputs = budget_inputs(plan, available);
    if let Some(text) = slow_disks(plan, available) {
        tell(&Event::Warning { text });
    }
    let rides_out_ms = inputs.as_ref().map(|inputs| inputs.rides_out_ms(bytes));
    let sum: Option<MemoryBudget> = inputs.as_ref().map(BudgetInputs::sum);
    if let (Some(sum), Some(ms)) = (&sum, rides_out_ms)
        && bytes < sum.bytes
        && ms < sum.stall.ms
    {
        let text = format!(
            "{} of block memory ride out a stall of {ms} ms; the planned stall of {} ms needs {}",
            ByteSize(bytes),
            sum.stall.ms,
            ByteSize(sum.bytes)
        );
        tell(&Event::Warning { text });
    }
    let requested = plan.buffer.is_some();
    let of_waiting = of_waiting(plan);
    let bytes = bytes.saturating_add(of_waiting);
    let pieces = plan.pieces_in_memory;
    tell(&Event::Memory(Memory { bytes, of_waiting, pieces, requested, rides_out_ms, sum }));
    Ok(())
}

/// Returns the memory that blocks may take: pieces in memory grow while the recording runs.
pub(super) fn for_blocks(plan: &RecordingConfig) -> u64 {
    available_memory().saturating_sub(plan.pieces_in_memory)
}

/// Returns `MemAvailable`, or no limit if the kernel does not report it.
pub fn available_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::StoreConfig;

    fn store(members: &[&str], stall: Option<Stall>) -> SinkConfig {
        let members = members.iter().map(Into::into).collect();
        SinkConfig::Store(StoreConfig { stall, ..StoreConfig::new(members) })
    }

    #[test]
    fn the_budget_adds_up_what_sinks_hold_and_how_long_they_stall() {
        let stall = |ms: f64| Some(Stall::measured(ms, "a benchmark".into()));
        let sinks = [store(&["/a", "/b"], stall(100.0)), store(&["/c"], stall(50.0))];
        let all = together(sinks.iter().filter_map(holding).collect()).unwrap();
        assert_eq!((all.members, all.stall.ms), (3, 300), "twice what was measured of each");
        assert_eq!(all.stall.measured.as_deref(), Some("a benchmark"));
        let sinks = [store(&["/a"], stall(100.0)), store(&["/b"], None)];
        let all = together(sinks.iter().filter_map(holding).collect()).unwrap();
        assert_eq!(all.stall.ms, 200 + Stall::assumed().ms);
        assert_eq!(all.stall.measured, None, "a part of it is a default");
        let one = together(vec![holding(&store(&["/a"], stall(100.0))).unwrap()]).unwrap();
        assert_eq!((one.members, one.stall.ms), (1, 200), "as without other sinks");
    }
}
