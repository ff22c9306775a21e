//! The sum of the accounts of consecutive scans of one stream.

use fullbore_core::account::{Account, CountedBy, DropCounter, Flow, Host, Presence, Unreachable};
use fullbore_core::clock_check::ClockOffset;
use fullbore_core::high_water::HighWaterHistory;
use fullbore_time::Tai;

/// A stream that lacks at least this time at an end, which another stream has, is reported.
const NOTICEABLE_NS: i64 = 550_000_000;

/// True if one account has threads of its own and the other has not, although both have frames: their numbers have
/// different meanings.
pub fn differ_in_threads(sum: &Account, next: &Account) -> bool {
    let both = sum.first.is_some() && next.first.is_some();
    both && sum.flows.is_empty() != next.flows.is_empty()
}

/// Adds the account of the next scan, which was armed `after_ns` after the first one.
pub fn add(sum: &mut Account, next: Account, after_ns: i64) {
    sum.terms.add(&next.terms);
    if sum.first.is_none() || sum.counted_by == CountedBy::Nothing {
        sum.counted_by = next.counted_by;
    }
    for (term, more) in [
        (&mut sum.bytes, next.bytes),
        (&mut sum.filled, next.filled),
        (&mut sum.invalid, next.invalid),
        (&mut sum.unverified, next.unverified),
        (&mut sum.duplicates, next.duplicates),
        (&mut sum.reordered, next.reordered),
        (&mut sum.foreign, next.foreign),
        (&mut sum.out_of_window, next.out_of_window),
        (&mut sum.unrecorded, next.unrecorded),
        (&mut sum.excluded, next.excluded),
        (&mut sum.restarts, next.restarts),
        (&mut sum.disagreements, next.disagreements),
        (&mut sum.masked, next.masked),
        (&mut sum.sample_loss, next.sample_loss),
        (&mut sum.over_range, next.over_range),
        (&mut sum.gaps_unlisted, next.gaps_unlisted),
    ] {
        *term = term.saturating_add(more);
    }
    sum.reorder_extent = sum.reorder_extent.max(next.reorder_extent);
    next.gaps.into_iter().for_each(|gap| sum.push_gap(gap));
    add_presence(&mut sum.presence, sum.first.is_some(), next.presence, next.first.is_some());
    sum.first = sum.first.or(next.first);
    sum.last = next.last.or(sum.last);
    if let Some((first, last)) = sum.first.as_mut().zip(sum.last.as_mut())
        && (sum.counted_by.is_blind() || !sum.flows.is_empty())
    {
        // These are counted from 0 in each scan, in the order of their arrival.
        let written = i64::try_from(sum.terms.written).unwrap_or(i64::MAX);
        (first.index, last.index) = (0, written.saturating_sub(1));
    }
    next.flows.into_iter().for_each(|flow| add_flow(&mut sum.flows, flow));
    add_counters(&mut sum.drop_counters, next.drop_counters);
    sum.unavailable_counters.extend(next.unavailable_counters);
    sum.unavailable_counters.sort();
    sum.unavailable_counters.dedup();
    sum.unreachable = joined(sum.unreachable.take(), next.unreachable, |mut a, b| {
        a.frames = a.frames.saturating_add(b.frames);
        a.members.extend(b.members);
        a.members.sort();
        a.members.dedup();
        Unreachable { ..a }
    });
    sum.host = joined(sum.host.take(), next.host, |a, b| add_host(a, b, after_ns));
    sum.clock = joined(sum.clock, next.clock, add_clock);
}

fn joined<T>(a: Option<T>, b: Option<T>, join: impl FnOnce(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(join(a, b)),
        (a, b) => a.or(b),
    }
}

/// True for a fact about the beginning of a stream.
fn is_of_beginning(fact: &Presence) -> bool {
    matches!(
        fact,
        Presence::CameLate { .. } | Presence::StartedLate { .. } | Presence::LacksBeginning { .. }
    )
}

/// True for a fact about the end of a stream.
fn is_of_end(fact: &Presence) -> bool {
    matches!(
        fact,
        Presence::WentEarly { .. } | Presence::DiedEarly { .. } | Presence::LacksEnd { .. }
    )
}

/// Keeps the facts about the beginning from the first scan with data, and those about the end from the last one.
fn add_presence(sum: &mut Vec<Presence>, has_data: bool, next: Vec<Presence>, next_has: bool) {
    match (has_data, next_has) {
        (true, true) => {
            sum.retain(|fact| !is_of_end(fact));
            sum.extend(next.into_iter().filter(|fact| !is_of_beginning(fact)));
        }
        // The stream was absent before, or is absent now: `complete_presence` compares it with the others.
        (false, true) => *sum = next.into_iter().filter(|fact| !is_of_beginning(fact)).collect(),
        (true, false) => sum.retain(|fact| !is_of_end(fact)),
        (false, false) => {}
    }
}

/// Adds what the streams show beside one another: one began later than others, or ended earlier. Within a second of each
/// other they do so because each is cut at a block of its own.
pub fn complete_presence(accounts: &mut [Account]) {
    let compared = accounts.iter().filter(|it| it.counted_by != CountedBy::ServerCount);
    let ends = compared.filter_map(|it| Some((it.first?.seen, it.last?.seen)));
    let (earliest, latest) =
        ends.fold((None, None), |(from, to): (Option<Tai>, Option<Tai>), (first, last)| {
            (Some(from.map_or(first, |it| it.min(first))), to.max(Some(last)))
        });
    let Some((earliest, latest)) = earliest.zip(latest) else { return };
    for account in accounts.iter_mut().filter(|it| it.counted_by != CountedBy::ServerCount) {
        let Some((first, last)) = account.first.zip(account.last) else { continue };
        if !account.flows.is_empty() {
            continue;
        }
        let between = i64::try_from(account.terms.expected.saturating_sub(1)).unwrap_or(i64::MAX);
        let period = last.seen.since(first.seen).checked_div(between).unwrap_or(0);
        let noticeable = NOTICEABLE_NS.max(period.saturating_mul(4));
        let (late, early) = (first.seen.since(earliest), latest.since(last.seen));
        if late > noticeable && !account.presence.iter().any(is_of_beginning) {
            account.presence.push(Presence::StartedLate { ns: late });
        }
        if early > noticeable && !account.presence.iter().any(is_of_end) {
            account.presence.push(Presence::DiedEarly { ns: early });
        }
    }
}

fn add_flow(flows: &mut Vec<Flow>, next: Flow) {
    let same = |it: &&mut Flow| (it.station, it.thread) == (next.station, next.thread);
    let Some(sum) = flows.iter_mut().find(same) else {
        flows.push(next);
        return;
    };
    sum.terms.add(&next.terms);
    sum.gaps.extend(next.gaps);
    add_presence(&mut sum.presence, sum.first.is_some(), next.presence, next.first.is_some());
    sum.first = sum.first.or(next.first);
    sum.last = next.last.or(sum.last);
}

/// Adds counters. One that several layers share was read for the next scan before it was read for this one, so the sum of
/// both differences may be more than it moved.
fn add_counters(sum: &mut Vec<DropCounter>, next: Vec<DropCounter>) {
    for next in next {
        let same = |it: &&mut DropCounter| {
            (it.layer, it.own, &it.counter, &it.scope)
                == (next.layer, next.own, &next.counter, &next.scope)
        };
        match sum.iter_mut().find(same) {
            Some(sum) => {
                let both = sum.moved().saturating_add(next.moved());
                let whole = next.after.checked_sub(sum.before).unwrap_or(u64::MAX);
                sum.after = sum.before.saturating_add(both.min(whole));
                sum.coarse |= next.coarse;
            }
            None => sum.push(next),
        }
    }
}

fn add_host(mut sum: Host, next: Host, after_ns: i64) -> Host {
    sum.pool_blocks = sum.pool_blocks.max(next.pool_blocks);
    sum.high_water = sum.high_water.max(next.high_water);
    for member in next.members {
        match sum.members.iter_mut().find(|it| it.path == member.path) {
            Some(known) => {
                known.longest_write_ns = known.longest_write_ns.max(member.longest_write_ns);
                known.failure = known.failure.take().or(member.failure);
            }
            None => sum.members.push(member),
        }
    }
    let after_ms = u64::try_from(after_ns / 1_000_000).unwrap_or(0);
    sum.high_water_history =
        joined(sum.high_water_history, next.high_water_history, |sum, next| {
            add_history(sum, &next, after_ms)
        });
    sum
}

fn add_history(
    mut sum: HighWaterHistory,
    next: &HighWaterHistory,
    after_ms: u64,
) -> HighWaterHistory {
    for (step, blocks) in (0..).zip(&next.blocks) {
        sum.record(after_ms.saturating_add(next.step_ms.saturating_mul(step)), u64::from(*blocks));
    }
    sum
}

/// Joins two comparisons with the host's clock. A drift over the whole time was not measured.
fn add_clock(a: ClockOffset, b: ClockOffset) -> ClockOffset {
    let longer = if b.over_ns > a.over_ns { b } else { a };
    ClockOffset {
        behind_ns: longer.behind_ns,
        least_ns: a.least_ns.min(b.least_ns),
        most_ns: a.most_ns.max(b.most_ns),
        over_ns: a.over_ns.saturating_add(b.over_ns),
        drift: None,
        host_synchronised: b.host_synchronised.or(a.host_synchronised),
    }
}
