//! Sealing: adds drop counters, presence and completeness to the accounts, and writes them beside the data.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fullbore_capture::CUT_PATIENCE;
use fullbore_core::account::{
    Account, CountedBy, Edge, Host, HostMember, Presence, judge_together,
};
use fullbore_core::completeness::TOLERANCE_NS;
use fullbore_core::manifest::{Member, State, Stream, Summary};
use fullbore_linux::ring::WriterMetrics;
use fullbore_linux::sys::clock::is_synchronised;
use fullbore_time::Tai;

use super::scan::ActiveScan;
use crate::error::RecordError;
use crate::event::Sealed;
use crate::sink::ScanSink;
use crate::source::SourceConfig;

/// A stream that lacks at least this time at an end, which another stream has, is reported.
const NOTICEABLE_NS: i64 = 250_000_000;

/// The same limit in frames of the stream. Slow streams are compared from their third frame on.
const NOTICEABLE_FRAMES: i64 = 4;

/// A stream that lacks at least this time of a scan with a limit is reported.
const LONG_NS: i64 = 1_000_000_000;

/// Completes the accounts of a scan in a sink, and writes the final manifest there. The scan has the manifest and the
/// accounts of this sink.
pub fn seal(
    scan: &mut ActiveScan,
    sink: &mut dyn ScanSink,
    sources: &[SourceConfig],
    writers: &[Arc<WriterMetrics>],
    aborted: bool,
) -> Result<Sealed, RecordError> {
    scan.name_the_unheard();
    add_silent_streams(scan, sources);
    add_host(scan, writers);
    add_drop_counters(scan, sources);
    add_presence(scan, sources);
    add_clock(scan);
    for (number, account) in &scan.accounts {
        assert!(account.terms.balance(), "stream {number}: {:?}", account.terms);
    }
    judge_together(scan.accounts.values_mut());
    for (number, account) in &scan.accounts {
        scan.manifest.streams[usize::from(*number)].account = Some(Summary::from(account));
    }
    let state = if aborted { State::Aborted } else { State::Sealed };
    sink.seal(&mut scan.manifest, &scan.accounts, state)?;
    let accounts = scan.accounts.values().cloned().collect();
    Ok(Sealed::of(scan.manifest.clone(), accounts))
}

/// Adds the account of a stream that never appeared.
fn add_silent_streams(scan: &mut ActiveScan, sources: &[SourceConfig]) {
    for (number, stream) in scan.manifest.streams.iter().enumerate() {
        let counted_by =
            source_of(stream, sources).map_or(CountedBy::Nothing, |source| source.counted_by());
        scan.accounts.entry(number as u16).or_insert_with(|| Account::new(counted_by));
    }
}

/// Adds the shared counters on the way of each stream. The counter of its own socket is in the account already.
fn add_drop_counters(scan: &mut ActiveScan, sources: &[SourceConfig]) {
    let Some(after) = &scan.shared_after else { return };
    for (number, account) in &mut scan.accounts {
        let stream = &scan.manifest.streams[usize::from(*number)];
        let Some(path) = source_of(stream, sources).and_then(|source| source.network()) else {
            continue;
        };
        let (shared, unavailable) = scan.shared.until(after, path.address, path.interface);
        account.drop_counters.extend(shared);
        account.unavailable_counters.extend(unavailable);
    }
}

/// Adds the metrics of ring and writers.
fn add_host(scan: &mut ActiveScan, writers: &[Arc<WriterMetrics>]) {
    let member = |(member, metrics): (&Member, &Arc<WriterMetrics>)| HostMember {
        path: member.path.display().to_string(),
        longest_write_ns: metrics.longest_write_ns.load(Relaxed),
        failure: member.failure.clone(),
    };
    let members: Vec<HostMember> = scan.manifest.members.iter().zip(writers).map(member).collect();
    for (number, account) in &mut scan.accounts {
        if let Some(metrics) = scan.metrics.get(number) {
            account.host = Some(Host {
                pool_blocks: metrics.pool_blocks.load(Relaxed),
                high_water: metrics.high_water.load(Relaxed),
                members: members.clone(),
                high_water_history: scan.high_water.get(number).cloned(),
            });
        }
    }
}

/// Adds the kernel's report on the host's clock to the clock comparison of the streams.
fn add_clock(scan: &mut ActiveScan) {
    let synchronised = is_synchronised();
    for clock in scan.accounts.values_mut().filter_map(|account| account.clock.as_mut()) {
        clock.host_synchronised = synchronised;
    }
}

/// Compares the streams with one another and with the plan: late begin, early end, no packets.
fn add_presence(scan: &mut ActiveScan, sources: &[SourceConfig]) {
    // A PandA reports its own begin and end, which do not apply to other streams.
    let tells = |account: &Account| account.counted_by == CountedBy::ServerCount;
    let seen = |account: &Account| Some((account.first?.seen, account.last?.seen));
    let compared = scan.accounts.values().filter(|account| !tells(account));
    let ends: Vec<(Tai, Tai)> = compared.filter_map(seen).collect();
    let earliest = ends.iter().map(|ends| ends.0).min();
    let latest = ends.iter().map(|ends| ends.1).max();
    let (armed, stopped) = (scan.manifest.armed, scan.manifest.stopped);
    let planned = scan.manifest.planned.unwrap_or_default();
    // In a series of scans each stream is cut at its next block. A frame beyond the cut is in the neighbouring scan.
    let cut = scan.cut;
    let allowed = |cut: bool| if cut { CUT_PATIENCE.as_nanos() as i64 } else { 0 };
    let beyond_cut = |lacking: Vec<Presence>| -> Vec<Presence> {
        let kept = |it: &Presence| match *it {
            Presence::LacksBeginning { ns, .. } => !cut.0 || ns > TOLERANCE_NS + allowed(true),
            _ => true,
        };
        lacking.into_iter().filter(kept).collect()
    };
    // The time that a stream or a thread lacks in comparison with the others, unless the plan shows more.
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
            if scan.unexpected.contains(number) && account.absence() == Presence::NeverCame {
                account.presence.push(Presence::NotExpected);
                continue;
            }
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
            // Compares with the plan if there is one, else with arming and the limit.
            let (no_begin, no_end) = (planned.begin.is_some(), planned.end.is_some());
            let told = within_limits(armed, stopped, first.seen, last.seen).into_iter();
            account.presence.extend(told.filter(|it| match it {
                Presence::CameLate { .. } => !no_begin,
                _ => !no_end,
            }));
        }
    }
}

/// Returns the frames per second of a stream if its endpoint states them.
fn rate_of(stream: &Stream, sources: &[SourceConfig]) -> Option<u64> {
    source_of(stream, sources)?.frames_per_second()
}

fn source_of<'s>(stream: &Stream, sources: &'s [SourceConfig]) -> Option<&'s SourceConfig> {
    sources.iter().find(|source| source.endpoint() == stream.source)
}

/// Returns the least gap at an end for which a stream of this many frames counts as late or as ended early.
fn noticeable(frames: u64, first: Tai, last: Tai) -> i64 {
    let between = i64::try_from(frames.saturating_sub(1)).unwrap_or(i64::MAX);
    let period = last.since(first).checked_div(between).unwrap_or(0);
    NOTICEABLE_NS.max(period.saturating_mul(NOTICEABLE_FRAMES))
}

/// Returns the parts of a limited scan that a stream did not fill.
fn within_limits(armed: Tai, stopped: Option<Tai>, first: Tai, last: Tai) -> Vec<Presence> {
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
