//! Space on a disk set: free space, chunk sizes, and the space for redundancy.

use std::collections::BTreeMap;
use std::time::Duration;

use fullbore_core::layout::CHUNK_BYTES;
use fullbore_core::redundancy::Scheme;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_store::Member;

use super::StoreConfig;
use crate::error::RecordError;
use crate::event::{Event, EventHandler};
use crate::sink::{Needs, device_of, free_in_all};

/// The least free space on a member for starting a scan.
const LEAST_FREE_BYTES: u64 = 16 << 20;

/// A full member is used again once this part of the space that it had at first is free, or space for two chunks of each
/// source.
const RETURN_SHARE: u64 = 8;

/// Refuses a store without members, and redundancy that needs more members than there are.
pub(crate) fn check(config: &StoreConfig) -> Result<(), RecordError> {
    let members = config.members.len();
    match config.redundancy {
        _ if members == 0 => Err(RecordError::NoMember),
        Some(scheme) if scheme.members() > members => {
            Err(RecordError::Redundancy { scheme, members })
        }
        _ => Ok(()),
    }
}

/// Refuses a recording for which the disk set has too little space from the start.
pub(crate) fn check_space(
    config: &StoreConfig,
    needs: &Needs,
    members: &[Member],
) -> Result<(), RecordError> {
    let mut free = Vec::with_capacity(members.len());
    let mut most = (0, members[0].root());
    for member in members {
        let bytes = member.free_bytes()?;
        free.push((device_of(member.root()), bytes));
        if bytes >= most.0 {
            most = (bytes, member.root());
        }
    }
    let total = free_in_all(free);
    if most.0 < LEAST_FREE_BYTES {
        let (path, needed) = (most.1.to_owned(), ByteSize(LEAST_FREE_BYTES));
        return Err(RecordError::NoSpace { path, free: ByteSize(most.0), needed });
    }
    let needed = with_redundancy(needs.bytes, config.redundancy, members.len());
    if needed > total {
        let members = members.iter().map(|member| member.root().to_owned()).collect();
        let (free, needed) = (ByteSize(total), ByteSize(needed));
        return Err(RecordError::NoRoom { members, free, needed });
    }
    Ok(())
}

/// Warns if the space does not last for the recording at the known rates of its sources. This is no error, since a
/// source may pause.
pub(crate) fn judge_space(
    config: &StoreConfig,
    needs: &Needs,
    members: &[Member],
    tell: &mut EventHandler<'_>,
) {
    let rate = with_redundancy(needs.rate, config.redundancy, members.len());
    let Some(lasts) = needs.lasts.filter(|_| rate > 0) else { return };
    let needed = u128::from(rate).saturating_mul(lasts.as_millis()) / 1000;
    let needed = u64::try_from(needed).unwrap_or(u64::MAX);
    let free =
        free_in_all(members.iter().map(|it| (device_of(it.root()), it.free_bytes().unwrap_or(0))));
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

/// Returns the space for this many bytes of data, or bytes per second, on a disk set with this many members.
fn with_redundancy(bytes: u64, redundancy: Option<Scheme>, members: usize) -> u64 {
    bytes.saturating_add(redundancy.map_or(0, |it| it.extra(bytes, members)))
}

/// Returns the seconds until this much space is filled by data at this rate, including redundancy.
pub(crate) fn until_full(
    free: u64,
    rate: u64,
    redundancy: Option<Scheme>,
    members: usize,
) -> Option<f64> {
    let rate = with_redundancy(rate, redundancy, members);
    (rate > 0).then(|| free as f64 / rate as f64)
}

/// Warns if there are too few members for the stripes, or if members share a file system: they share its space and its
/// rate, and fail together.
pub(crate) fn judge_redundancy(
    config: &StoreConfig,
    members: &[Member],
    tell: &mut EventHandler<'_>,
) {
    if let Some(scheme) = config.redundancy
        && members.len() < scheme.members()
    {
        let (there, wanted) = (members.len(), scheme.members());
        let so = match there > usize::from(scheme.parity) {
            true => "stripes have fewer chunks, which takes more space",
            false => "chunks have less parity than was asked for, or none",
        };
        let take = if there == 1 { "takes" } else { "take" };
        let text = format!("{scheme} takes {wanted} members, and {there} {take} part: {so}");
        tell(&Event::Warning { text });
    }
    let mut seen: BTreeMap<u64, &Member> = BTreeMap::new();
    for member in members {
        let Some(device) = device_of(member.root()) else { continue };
        if let Some(other) = seen.insert(device, member) {
            let (one, two) = (other.root().display(), member.root().display());
            let both = format!("{one} and {two} are on one file system");
            tell(&match config.redundancy {
                Some(scheme) => Event::Warning {
                    text: format!("{both}: {scheme} does not help if that is lost"),
                },
                None => {
                    Event::Note { text: format!("{both}: they share its free space and its speed") }
                }
            });
            return;
        }
    }
}

/// Returns the chunk size. By default four chunks of each source fit on the member with the most free space. Warns of
/// members without space for a block, which get no data.
pub(crate) fn fit_chunk(
    config: &StoreConfig,
    needs: &Needs,
    members: &[Member],
    tell: &mut EventHandler<'_>,
) -> Result<ByteSize, RecordError> {
    let free = members.iter().map(Member::free_bytes).collect::<Result<Vec<u64>, _>>()?;
    let most = free.iter().copied().max().unwrap_or(0);
    let block = needs.block_bytes;
    let default = (most / (4 * needs.streams)).min(CHUNK_BYTES).max(block);
    let chunk = config.chunk.unwrap_or(ByteSize(default));
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

/// Returns the free space that a full member needs to be used again for this many sources; `at_first` bytes were free when
/// the recording began. With less, it would be full again at once.
pub(crate) fn room_to_return(sources: u64, chunk: u64, at_first: u64) -> u64 {
    let two_of_each = chunk.saturating_mul(2 * sources.max(1));
    two_of_each.min((at_first / RETURN_SHARE).max(LEAST_FREE_BYTES))
}

/// Formats a time for people: the leading units of hours, minutes and seconds.
pub(crate) fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, _) => format!("{} s", time.as_millis() as f64 / 1000.0),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_full_member_returns_with_room_for_two_chunks_or_an_eighth_of_its_space() {
        const GIB: u64 = 1 << 30;
        assert_eq!(room_to_return(8, GIB / 4, 1000 * GIB), 4 * GIB);
        assert_eq!(room_to_return(8, 10 * GIB, 4 * GIB), GIB / 2);
        assert_eq!(room_to_return(1, 10 * GIB, 32 << 20), LEAST_FREE_BYTES);
        assert_eq!(room_to_return(1, 1 << 20, 32 << 20), 2 << 20);
    }

    #[test]
    fn a_time_is_said_in_the_units_that_matter() {
        let said = |ms: u64| in_words(Duration::from_millis(ms));
        assert_eq!(said(2500), "2.5 s");
        assert_eq!(said(90_000), "1 min 30 s");
        assert_eq!(said(3_600_000 * 1000 + 120_000), "1000 h 2 min");
    }
}
