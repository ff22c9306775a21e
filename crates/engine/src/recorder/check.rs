//! What of a plan can be judged before anything is opened: names, cores, and the room for it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use fullbore_core::endpoint::{Threads, UdpSource};
use fullbore_core::layout::{ALIGNMENT, BLOCK_BYTES, CHUNK_BYTES};
use fullbore_core::name::Name;
use fullbore_core::place::Wish;
use fullbore_core::redundancy::Scheme;
use fullbore_core::time::Tai;
use fullbore_core::units::{ByteRate, ByteSize};

use super::error::RecordError;
use super::event::{Event, Tell};
use super::plan::Plan;
use crate::clock::Clock;
use crate::source::wanted_block_bytes;
use crate::store::Member;
use crate::sys::sched;

/// No scan is begun with less room than this on any member.
const LEAST_FREE_BYTES: u64 = 16 << 20;

/// No chunk file is larger.
const LARGEST_CHUNK_BYTES: u64 = 64 << 30;

/// No more space is taken for a chunk at a time, where it is taken in steps.
const LARGEST_STEP_BYTES: u64 = 64 << 20;

/// Steps that every stream gets of a member, at least. What is taken and not filled when the member is full is at
/// most one and a half of them for each stream.
const STEPS: u64 = 16;

pub(super) fn check(plan: &Plan) -> Result<(), RecordError> {
    if plan.sources.is_empty() && plan.pandas.is_empty() {
        return Err(RecordError::NoSource);
    }
    if plan.members.is_empty() {
        return Err(RecordError::NoMember);
    }
    if let Some(scheme) = plan.redundancy
        && scheme.members() > plan.members.len()
    {
        return Err(RecordError::Redundancy { scheme, members: plan.members.len() });
    }
    check_inputs(plan)
}

/// What can be said of a plan whatever it is recorded into.
pub(super) fn check_inputs(plan: &Plan) -> Result<(), RecordError> {
    let mut names: BTreeSet<&Name> = BTreeSet::new();
    let pandas = plan.pandas.iter().map(|panda| &panda.source.name);
    for name in plan.sources.iter().map(|source| &source.name).chain(pandas) {
        if !names.insert(name) {
            return Err(RecordError::SameName { name: name.clone() });
        }
    }
    check_cpus(&plan.place)?;
    if let Some(until) = plan.limit.until
        && until <= Clock::new().now()
    {
        return Err(RecordError::Past { until });
    }
    Ok(())
}

/// Refuses cores that the machine does not have, or that this process may not use.
fn check_cpus(wish: &Wish) -> Result<(), RecordError> {
    // Tried by a thread of its own: one that is isolated may be allowed, though nothing runs there yet.
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

/// Refuses chunks that are smaller than a block of any source, or absurdly large.
pub(super) fn check_chunk(plan: &Plan, share: u64) -> Result<(), RecordError> {
    let Some(chunk) = plan.chunk else { return Ok(()) };
    let block = |source: &UdpSource| wanted_block_bytes(source, share as usize, None);
    let least = plan.sources.iter().map(block).max().unwrap_or(0);
    if (least..=LARGEST_CHUNK_BYTES).contains(&chunk.0) {
        return Ok(());
    }
    Err(RecordError::Chunk { chunk, least: ByteSize(least), most: ByteSize(LARGEST_CHUNK_BYTES) })
}

/// Refuses a recording for which the disk set has no room from the start.
pub(super) fn check_space(plan: &Plan, members: &[Member]) -> Result<(), RecordError> {
    let mut free = Vec::with_capacity(members.len());
    let mut most = (0, members[0].root());
    for member in members {
        let bytes = member.free_bytes()?;
        free.push((device(member), bytes));
        if bytes >= most.0 {
            most = (bytes, member.root());
        }
    }
    let total = in_all(free);
    if most.0 < LEAST_FREE_BYTES {
        let (path, needed) = (most.1.to_owned(), ByteSize(LEAST_FREE_BYTES));
        return Err(RecordError::NoSpace { path, free: ByteSize(most.0), needed });
    }
    let needed = plan.limit.bytes.unwrap_or(0).saturating_mul(plan.scans.len() as u64);
    let needed = with_redundancy(needed, plan.redundancy, members.len());
    if needed > total {
        let members = members.iter().map(|member| member.root().to_owned()).collect();
        let (free, needed) = (ByteSize(total), ByteSize(needed));
        return Err(RecordError::NoRoom { members, free, needed });
    }
    Ok(())
}

/// Warns of a recording that lasts longer than there is room for, by the rates that its sources are known to have. It
/// is no refusal, since nobody has to send all the time.
pub(super) fn judge_space(plan: &Plan, members: &[Member], now: Tai, tell: &mut Tell<'_>) {
    let rate: u64 = plan.sources.iter().filter_map(known_rate).sum();
    let rate = with_redundancy(rate, plan.redundancy, members.len());
    let Some(lasts) = plan.lasts(now).filter(|_| rate > 0) else { return };
    let needed = u128::from(rate).saturating_mul(lasts.as_millis()) / 1000;
    let needed = u64::try_from(needed).unwrap_or(u64::MAX);
    let free = in_all(members.iter().map(|it| (device(it), it.free_bytes().unwrap_or(0))));
    if needed > free {
        let text = format!(
            "{} at {} are {}, and the disk set has {} free: it is full after {}",
            in_words(lasts),
            ByteRate(rate),
            ByteSize(needed),
            ByteSize(free),
            in_words(Duration::from_secs(free / rate)),
        );
        tell(&Event::Warning { text });
    }
}

/// What so many bytes of data take on a disk set of so many members, or so many a second.
fn with_redundancy(bytes: u64, redundancy: Option<Scheme>, members: usize) -> u64 {
    bytes.saturating_add(redundancy.map_or(0, |it| it.extra(bytes, members)))
}

/// Seconds until so much room is taken by data that comes at this rate, and by what makes up for lost members.
pub(super) fn until_full(
    free: u64,
    rate: u64,
    redundancy: Option<Scheme>,
    members: usize,
) -> Option<f64> {
    let rate = with_redundancy(rate, redundancy, members);
    (rate > 0).then(|| free as f64 / rate as f64)
}

/// Warns of members that stripes are short of, and tells of members on one file system: they share its room and its
/// rate, and are lost together.
pub(super) fn judge_redundancy(plan: &Plan, members: &[Member], tell: &mut Tell<'_>) {
    if let Some(scheme) = plan.redundancy
        && members.len() < scheme.members()
    {
        let (there, wanted) = (members.len(), scheme.members());
        let so = match there > usize::from(scheme.parity) {
            true => "stripes are made of fewer chunks, which takes more room",
            false => "chunks have less parity than was asked for, or none",
        };
        let take = if there == 1 { "takes" } else { "take" };
        let text = format!("{scheme} takes {wanted} members, and {there} {take} part: {so}");
        tell(&Event::Warning { text });
    }
    let mut seen: BTreeMap<u64, &Member> = BTreeMap::new();
    for member in members {
        let Some(device) = device(member) else { continue };
        if let Some(other) = seen.insert(device, member) {
            let (one, two) = (other.root().display(), member.root().display());
            let both = format!("{one} and {two} lie on one file system");
            tell(&match plan.redundancy {
                Some(scheme) => Event::Warning {
                    text: format!("{both}: {scheme} does not help where that is lost"),
                },
                None => {
                    Event::Note { text: format!("{both}: they share its free space and its speed") }
                }
            });
            return;
        }
    }
}

/// The file system that a member lies on.
pub(super) fn device(member: &Member) -> Option<u64> {
    std::fs::metadata(member.root()).ok().map(|metadata| metadata.dev())
}

/// Bytes free on all members together; those of one file system have the same room.
pub(super) fn in_all(free: impl IntoIterator<Item = (Option<u64>, u64)>) -> u64 {
    let mut devices: BTreeMap<u64, u64> = BTreeMap::new();
    let mut alone = 0u64;
    for (device, bytes) in free {
        match device {
            Some(device) => {
                let most = devices.entry(device).or_default();
                *most = bytes.max(*most);
            }
            None => alone = alone.saturating_add(bytes),
        }
    }
    devices.into_values().fold(alone, u64::saturating_add)
}

/// Bytes per second of a source that says so beforehand; of several threads that are not listed, those of one.
pub(super) fn known_rate(source: &UdpSource) -> Option<u64> {
    let threads = match &source.threads {
        Threads::Listed(threads) => threads.len() as u64,
        Threads::Together | Threads::Split => 1,
    };
    let of_thread = source.frames_per_second?.checked_mul(source.frame_bytes?.into())?;
    of_thread.checked_mul(threads)
}

/// A time as people say it: hours, minutes and seconds, as many of them as matter.
pub(super) fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, _) => format!("{} s", time.as_millis() as f64 / 1000.0),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// The size of chunks. Where none is asked for, every source finds room for four on the roomiest member. A member
/// without room for a block of a chunk is named, since it will get nothing.
pub(super) fn fit_chunk(
    plan: &Plan,
    members: &[Member],
    tell: &mut Tell<'_>,
) -> Result<ByteSize, RecordError> {
    let free = members.iter().map(Member::free_bytes).collect::<Result<Vec<u64>, _>>()?;
    let most = free.iter().copied().max().unwrap_or(0);
    let block = largest_block(plan);
    let default = (most / (4 * streams(plan))).min(CHUNK_BYTES).max(block);
    let chunk = plan.chunk.unwrap_or(ByteSize(default));
    let least = ByteSize(chunk.0.min(block));
    if least.0 > most {
        let roomiest = members.iter().zip(&free).max_by_key(|(_, free)| **free);
        let path = roomiest.map(|(member, _)| member.root().to_owned()).unwrap_or_default();
        return Err(RecordError::NoSpace { path, free: ByteSize(most), needed: least });
    }
    for (member, &free) in members.iter().zip(&free).filter(|(_, free)| **free < least.0) {
        let text = format!(
            "{} has {} free, and a chunk takes at least {least}: nothing will be recorded on it",
            member.root().display(),
            ByteSize(free),
        );
        tell(&Event::Warning { text });
    }
    Ok(chunk)
}

/// Space that is taken for a chunk at a time on a member with so many bytes free.
pub(super) fn chunk_step(plan: &Plan, free: u64) -> u64 {
    let chunk = plan.chunk.map_or(CHUNK_BYTES, |size| size.0);
    step(streams(plan), largest_block(plan), chunk, free)
}

/// The whole chunk where two chunks of every stream fit. Otherwise so little that every stream gets many such steps
/// before the disk is full. Where there is room nothing is taken in steps, as writes to a file wait while it grows.
fn step(streams: u64, block: u64, chunk: u64, free: u64) -> u64 {
    if chunk.saturating_mul(2 * streams) <= free {
        return chunk;
    }
    let step = (free / (STEPS * streams)).min(LARGEST_STEP_BYTES).max(block);
    step.min(chunk).next_multiple_of(ALIGNMENT)
}

fn streams(plan: &Plan) -> u64 {
    (plan.sources.len() + plan.pandas.len()).max(1) as u64
}

fn largest_block(plan: &Plan) -> u64 {
    let block = plan.sources.iter().map(|source| source.block.map_or(BLOCK_BYTES, |size| size.0));
    block.max().unwrap_or(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_known_beforehand_where_length_and_number_of_frames_are() {
        let rate = |query: &str| {
            let sources = UdpSource::parse(&format!("udp://0.0.0.0:46220?{query}")).unwrap();
            known_rate(&sources[0])
        };
        assert_eq!(rate("format=vdif&frame=8032&fps=32000"), Some(8032 * 32_000));
        assert_eq!(rate("format=vdif&frame=8032&fps=1000&threads=0-3"), Some(4 * 8032 * 1000));
        assert_eq!(rate("format=vdif&fps=32000"), None);
        assert_eq!(rate("format=vdif&frame=8032"), None);
    }

    #[test]
    fn a_disk_set_is_full_sooner_by_what_redundancy_takes() {
        let until = |scheme: Option<&str>| {
            until_full(12_000, 100, scheme.map(|text| text.parse().unwrap()), 6).unwrap()
        };
        assert_eq!(until(None), 120.0);
        assert_eq!(until(Some("mirror")), 60.0);
        assert_eq!(until(Some("parity:4+1")), 96.0);
        assert_eq!(until(Some("parity:4+2")), 80.0);
        assert_eq!(until_full(12_000, 0, None, 6), None);
        let two_members = until_full(12_000, 100, Some("parity:4+1".parse().unwrap()), 2);
        assert_eq!(two_members, Some(60.0), "stripes are as wide as members allow");
    }

    #[test]
    fn a_chunk_takes_its_space_in_steps_where_two_of_every_stream_do_not_fit() {
        const GIB: u64 = 1 << 30;
        assert_eq!(step(8, BLOCK_BYTES, GIB / 4, 4 * GIB), GIB / 4);
        assert_eq!(step(8, BLOCK_BYTES, GIB, 4 * GIB), GIB / 32);
        assert_eq!(step(8, BLOCK_BYTES, 10 * GIB, 100 * GIB), LARGEST_STEP_BYTES);
        assert_eq!(step(8, BLOCK_BYTES, 10 * GIB, 1 << 20), BLOCK_BYTES, "a block at least");
        assert_eq!(step(1, BLOCK_BYTES, 10 * GIB, 20 * GIB), 10 * GIB);
    }

    #[test]
    fn members_of_one_file_system_have_the_same_room() {
        assert_eq!(in_all([(Some(1), 5), (Some(1), 5), (Some(2), 3), (None, 2)]), 10);
    }

    #[test]
    fn a_time_is_said_in_the_units_that_matter() {
        let said = |ms: u64| in_words(Duration::from_millis(ms));
        assert_eq!(said(2500), "2.5 s");
        assert_eq!(said(90_000), "1 min 30 s");
        assert_eq!(said(3_600_000 * 1000 + 120_000), "1000 h 2 min");
    }
}
