//! Sealing: the accounts get their witnesses, presence and verdict, and are written beside the data.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fullbore_core::account::{
    Account, CountedBy, Edge, Host, HostMember, Presence, judge_together,
};
use fullbore_core::completeness::TOLERANCE_NS;
use fullbore_core::endpoint::UdpSource;
use fullbore_core::manifest::{Member, State, Stream, Summary};
use fullbore_core::time::Tai;

use super::error::RecordError;
use super::event::Sealed;
use super::scan::Scan;
use super::scribe::Answers;
use crate::ring::Gauge;
use crate::source::CUT_PATIENCE;
use crate::store::{markers, reader};
use crate::sys::clock::is_synchronised;

/// A stream that lacks so much at either end, while another has it, is said to.
const NOTICEABLE_NS: i64 = 250_000_000;

/// … or so many of its own frames: a slow one is known from its third frame on.
const NOTICEABLE_FRAMES: i64 = 4;

/// A stream that lacks so much of a scan that a limit ended is said to.
const LONG_NS: i64 = 1_000_000_000;

/// Completes the accounts of a scan and writes it down as finished.
pub fn seal(
    scan: &mut Scan,
    sources: &[UdpSource],
    writers: &[Arc<Gauge>],
    aborted: bool,
) -> Result<Sealed, RecordError> {
    scan.name_the_unheard();
    add_silent_streams(scan, sources);
    add_host(scan, writers);
    add_witnesses(scan, sources);
    add_presence(scan, sources);
    add_clock(scan);
    for (number, account) in &scan.accounts {
        assert!(account.terms.balance(), "stream {number}: {:?}", account.terms);
    }
    judge_together(scan.accounts.values_mut());
    for (number, account) in &scan.accounts {
        scan.manifest.streams[usize::from(*number)].account = Some(Summary::from(account));
    }
    write_down(scan, if aborted { State::Aborted } else { State::Sealed })?;
    let accounts = scan.accounts.values().cloned().collect();
    Ok(Sealed::of(scan.manifest.clone(), accounts))
}

/// Writes the accounts, and then the manifests, which alone say that it is sealed.
fn write_down(scan: &mut Scan, state: State) -> Result<(), RecordError> {
    if scan.is_kept_nowhere() {
        return Err(RecordError::NoMemberLeft);
    }
    let accounts: Vec<Answers> =
        scan.accounts.iter().map(|(number, it)| scan.write_account(*number, it)).collect();
    for mut answers in accounts {
        answers.wait_for_enough(&mut scan.silent);
        answers.one_is_enough()?;
    }
    scan.manifest.state = state;
    scan.manifest.markers = scan.markers();
    place_markers(scan);
    scan.name_the_silent();
    let mut manifests = scan.write_manifests();
    manifests.wait_for_enough(&mut scan.silent);
    if scan.name_the_silent() {
        manifests = scan.write_manifests();
        manifests.wait_for_enough(&mut scan.silent);
    }
    manifests.one_is_enough()
}

/// Says where the streams were when something was marked, where that was not on the disk when it was.
fn place_markers(scan: &mut Scan) {
    let streams = scan.manifest.streams.len();
    if scan.manifest.markers.iter().all(|marker| marker.positions.len() >= streams) {
        return;
    }
    // Without its indexes nobody knows, and whoever can read them later says it.
    let Ok(stored) = reader::Scan::open(&scan.answering(), &scan.manifest.scan) else { return };
    for marker in &mut scan.manifest.markers {
        markers::place(&stored, marker, false);
    }
}

/// The account of a stream that never came.
fn add_silent_streams(scan: &mut Scan, sources: &[UdpSource]) {
    for (number, stream) in scan.manifest.streams.iter().enumerate() {
        let source = sources.iter().find(|source| source.endpoint.to_string() == stream.source);
        let counted_by = source.map_or(CountedBy::Nothing, UdpSource::counted_by);
        scan.accounts.entry(number as u16).or_insert_with(|| Account::new(counted_by));
    }
}

/// The shared counters on the way of each stream; its own socket's is there already.
fn add_witnesses(scan: &mut Scan, sources: &[UdpSource]) {
    let Some(after) = &scan.shared_after else { return };
    for (number, account) in &mut scan.accounts {
        let endpoint = &scan.manifest.streams[usize::from(*number)].source;
        let Some(source) = sources.iter().find(|s| s.endpoint.to_string() == *endpoint) else {
            continue;
        };
        let (shared, unread) =
            scan.shared.until(after, source.address.ip(), source.interface.as_deref());
        account.witnesses.extend(shared);
        account.unread.extend(unread);
    }
}

/// What ring and writers say of themselves.
fn add_host(scan: &mut Scan, writers: &[Arc<Gauge>]) {
    let member = |(member, gauge): (&Member, &Arc<Gauge>)| HostMember {
        path: member.path.display().to_string(),
        longest_write_ns: gauge.longest_write_ns.load(Relaxed),
        failure: member.failure.clone(),
    };
    let members: Vec<HostMember> = scan.manifest.members.iter().zip(writers).map(member).collect();
    for (number, account) in &mut scan.accounts {
        if let Some(gauge) = scan.gauges.get(number) {
            account.host = Some(Host {
                pool_blocks: gauge.pool_blocks.load(Relaxed),
                high_water: gauge.high_water.load(Relaxed),
                members: members.clone(),
                tide: scan.tides.get(number).cloned(),
            });
        }
    }
}

/// What the kernel says of the host's own clock, beside what the streams' were against it.
fn add_clock(scan: &mut Scan) {
    let synchronised = is_synchronised();
    for clock in scan.accounts.values_mut().filter_map(|account| account.clock.as_mut()) {
        clock.host_synchronised = synchronised;
    }
}

/// What the streams show of one another and of the plan: who began last, who ended first, who never came.
fn add_presence(scan: &mut Scan, sources: &[UdpSource]) {
    // A PandA says itself when it began and ended, which is no measure for others.
    let tells = |account: &Account| account.counted_by == CountedBy::ServerCount;
    let seen = |account: &Account| Some((account.first?.seen, account.last?.seen));
    let compared = scan.accounts.values().filter(|account| !tells(account));
    let ends: Vec<(Tai, Tai)> = compared.filter_map(seen).collect();
    let earliest = ends.iter().map(|ends| ends.0).min();
    let latest = ends.iter().map(|ends| ends.1).max();
    let (armed, stopped) = (scan.manifest.armed, scan.manifest.stopped);
    let planned = scan.manifest.planned.unwrap_or_default();
    // Where scans follow one another, each stream is cut at its next block: no frame is lacking that its neighbour has.
    let cut = scan.cut;
    let allowed = |cut: bool| if cut { CUT_PATIENCE.as_nanos() as i64 } else { 0 };
    let beyond_cut = |lacking: Vec<Presence>| -> Vec<Presence> {
        let kept = |it: &Presence| match *it {
            Presence::LacksBeginning { ns, .. } => !cut.0 || ns > TOLERANCE_NS + allowed(true),
            _ => true,
        };
        lacking.into_iter().filter(kept).collect()
    };
    // What a stream or a thread lacks beside the others, where the plan does not tell more of it.
    let beside_others = |frames: u64, (first, last): (Edge, Edge), lacking: &[Presence]| {
        let noticeable = noticeable(frames, first.seen, last.seen);
        let of_plan = |of: fn(&Presence) -> bool| lacking.iter().any(of);
        let late = earliest.map_or(0, |earliest| first.seen.since(earliest));
        let early = latest.map_or(0, |latest| latest.since(last.seen));
        let mut found = Vec::new();
        if late > noticeable + allowed(cut.0)
            && !of_plan(|it| matches!(it, Presence::LacksBeginning { .. }))
        {
            found.push(Presence::StartedLate { ns: late });
        }
        if early > noticeable + allowed(cut.1)
            && !of_plan(|it| matches!(it, Presence::LacksEnd { .. }))
        {
            found.push(Presence::DiedEarly { ns: early });
        }
        found
    };
    for (number, account) in &mut scan.accounts {
        let stream = &scan.manifest.streams[usize::from(*number)];
        let rate = stream.frames_per_second(account).or_else(|| rate_of(stream, sources));
        let lacking = beyond_cut(planned.lacking(account, rate, armed, stopped));
        let (Some(first), Some(last)) = (account.first, account.last) else {
            account.presence.push(account.absence());
            account.presence.extend(lacking);
            continue;
        };
        let rate = stream.frames_per_second_of_thread().or_else(|| rate_of(stream, sources));
        for flow in &mut account.flows {
            let lacking = beyond_cut(planned.lacking_of(flow, rate, armed, stopped));
            flow.presence = match flow.first.zip(flow.last) {
                None => vec![Presence::NeverCame],
                Some(ends) => beside_others(flow.terms.expected, ends, &lacking),
            };
            flow.presence.extend(lacking);
        }
        if account.flows.is_empty() && !tells(account) {
            let told = beside_others(account.terms.expected, (first, last), &lacking);
            account.presence.extend(told);
        }
        account.presence.extend(lacking);
        if scan.limited {
            // Against the plan where there is one, else against arming and the limit.
            let (no_begin, no_end) = (planned.begin.is_some(), planned.end.is_some());
            let told = within_limits(armed, stopped, first.seen, last.seen).into_iter();
            account.presence.extend(told.filter(|it| match it {
                Presence::CameLate { .. } => !no_begin,
                _ => !no_end,
            }));
        }
    }
}

/// Frames per second of a stream by its endpoint, where that says it.
fn rate_of(stream: &Stream, sources: &[UdpSource]) -> Option<u64> {
    let source = sources.iter().find(|source| source.endpoint.to_string() == stream.source)?;
    source.frames_per_second
}

/// How much a stream of so many frames must lack at an end to have begun late or died early.
fn noticeable(frames: u64, first: Tai, last: Tai) -> i64 {
    let between = i64::try_from(frames.saturating_sub(1)).unwrap_or(i64::MAX);
    let period = last.since(first).checked_div(between).unwrap_or(0);
    NOTICEABLE_NS.max(period.saturating_mul(NOTICEABLE_FRAMES))
}

/// How much of a scan that a limit ended a stream did not fill.
pub(crate) fn within_limits(
    armed: Tai,
    stopped: Option<Tai>,
    first: Tai,
    last: Tai,
) -> Vec<Presence> {
    let mut found = Vec::new();
    let late = first.since(armed);
    if late > LONG_NS {
        found.push(Presence::CameLate { ns: late });
    }
    let early = stopped.map_or(0, |stopped| stopped.since(last));
    if early > LONG_NS {
        found.push(Presence::WentEarly { ns: early });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_stream_has_the_time_of_some_frames_to_begin_and_to_end() {
        let at = |ms: i64| Tai(ms * 1_000_000);
        assert_eq!(noticeable(4000, at(0), at(1000)), NOTICEABLE_NS);
        assert_eq!(noticeable(11, at(0), at(5000)), 2_000_000_000);
        assert_eq!(noticeable(1, at(0), at(0)), NOTICEABLE_NS);
        assert_eq!(noticeable(0, at(0), at(0)), NOTICEABLE_NS);
    }

    #[test]
    fn a_stream_that_fills_only_a_part_of_a_limited_scan_is_said_to() {
        let at = |seconds: i64| Tai(seconds * 1_000_000_000);
        let told = |first, last| within_limits(at(100), Some(at(110)), at(first), at(last));
        assert_eq!(told(101, 109), []);
        let (late, early) = (3_000_000_000, 4_000_000_000);
        assert_eq!(told(103, 109), [Presence::CameLate { ns: late }]);
        assert_eq!(
            told(103, 106),
            [Presence::CameLate { ns: late }, Presence::WentEarly { ns: early }]
        );
        assert_eq!(within_limits(at(100), None, at(100), at(101)), []);
    }
}
