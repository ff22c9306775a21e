//! Accounts as text: a table of the balance, and additional details.

use std::cmp::Reverse;
use std::fmt::Write;

use fullbore_core::account::{Account, CountedBy, Flow, Terms};
use fullbore_core::gap::{Cause, Gap};
use fullbore_core::high_water::HighWaterHistory;
use fullbore_time::Tai;

use crate::output::count;

/// A column beside the balance: its name, and its value.
pub type Column = (&'static str, fn(&Account) -> u64);

/// Columns beside the balance, shown only if any stream has a value in them.
pub const BESIDE: [Column; 15] = [
    ("filled", |account| account.filled),
    ("invalid", |account| account.invalid),
    ("not transferred", |account| account.terms.not_transferred),
    ("duplicates", |account| account.duplicates),
    ("reordered", |account| account.reordered),
    ("foreign", |account| account.foreign),
    ("out of window", |account| account.out_of_window),
    ("unrecorded", |account| account.unrecorded),
    ("excluded", |account| account.excluded),
    ("restarts", |account| account.restarts),
    ("disagreements", |account| account.disagreements),
    ("masked", |account| account.masked),
    ("sample loss", |account| account.sample_loss),
    ("over range", |account| account.over_range),
    ("unverified", |account| account.unverified),
];

/// The accounts of the streams of a scan, one line each, and their sum. Streams that are not complete come first.
pub fn table<'a>(accounts: impl IntoIterator<Item = (&'a str, &'a Account)>) -> String {
    let mut accounts: Vec<(&str, &Account)> = accounts.into_iter().collect();
    // Incomplete streams come first.
    accounts.sort_by_key(|(_, account)| Reverse(account.completeness().status));
    let beside: Vec<_> =
        BESIDE.iter().filter(|(_, of)| accounts.iter().any(|(_, it)| of(it) > 0)).collect();
    let mut rows = vec![heading(&beside)];
    for (name, account) in &accounts {
        let mut row = vec![(*name).to_owned()];
        row.extend(balance(&account.terms));
        row.extend(beside.iter().map(|(_, of)| of(account).to_string()));
        row.push(account.verdict.to_string());
        rows.push(row);
    }
    if accounts.len() > 1 {
        let mut sum = Terms::default();
        accounts.iter().for_each(|(_, account)| sum.add(&account.terms));
        let mut row = vec!["all".to_owned()];
        row.extend(balance(&sum));
        row.extend(beside.iter().map(|(_, of)| {
            accounts.iter().map(|(_, account)| of(account)).sum::<u64>().to_string()
        }));
        let worst = accounts.iter().map(|(_, account)| account.verdict).max();
        row.push(worst.map_or_else(String::new, |verdict| verdict.to_string()));
        rows.push(row);
    }
    columns(&rows, 1)
}

fn heading(beside: &[&Column]) -> Vec<String> {
    let terms = ["stream", "expected", "written", "missing", "overrun", "damaged", "late"];
    let beside = beside.iter().map(|(name, _)| *name);
    terms.into_iter().chain(beside).chain(["verdict"]).map(str::to_owned).collect()
}

fn balance(terms: &Terms) -> [String; 6] {
    let Terms { expected, written, missing, overrun, damaged, late, .. } = *terms;
    [expected, written, missing, overrun, damaged, late].map(|frames| frames.to_string())
}

/// Rows as aligned text: the first `left` columns and the last one left-aligned, numbers right-aligned.
pub fn columns(rows: &[Vec<String>], left: usize) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = if column < left || column + 1 == count {
                write!(line, "{cell:<width$}  ")
            } else {
                write!(line, "{cell:>width$}  ")
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// The method by which frames were counted, in words.
pub fn counted_by(by: CountedBy) -> &'static str {
    match by {
        CountedBy::FrameTime => "the time in each frame",
        CountedBy::PacketNumber => "the packet number before each frame",
        CountedBy::SequenceField => "the sequence field described",
        CountedBy::PacketCount => {
            "the packet count alone: losses of 16, 32 … packets in a row do not show"
        }
        CountedBy::ServerCount => "the count of the device that took them",
        CountedBy::Nothing => "nothing: it carries no number",
        CountedBy::Bytes => "nothing: it is bytes without frames",
    }
}

/// Details beside the balance: presence, counters that moved, the first gaps.
pub fn details(
    name: &str,
    account: &Account,
    time_of: impl Fn(i64) -> Option<Tai>,
    gaps_shown: usize,
) -> String {
    let mut lines = Vec::new();
    lines.extend(account.presence.iter().map(ToString::to_string));
    if account.restarts > 0 {
        let times = if account.restarts == 1 { "once" } else { "more than once" };
        lines.push(format!(
            "the sender restarted its count {times}: the frames in between are unknown"
        ));
    }
    if account.out_of_window > 0 {
        lines.push(format!(
            "{} whole frames were discarded: their times are too far from those of other frames, or another frame \
             has the same time",
            account.out_of_window
        ));
    }
    if account.disagreements > 0 {
        lines.push(format!(
            "the second count in the frames disagreed with their time {}: one of the sender's two counters is wrong",
            count(usize::try_from(account.disagreements).unwrap_or(usize::MAX), "time")
        ));
    }
    if account.unrecorded > 0 {
        lines.push(format!(
            "{} whole frames arrived and were not recorded: too few of a thread to open a stream, or no stream could \
             be opened for them",
            account.unrecorded
        ));
    }
    if account.excluded > 0 {
        lines.push(format!(
            "{} datagrams were left out by threads=, source= or frame= of the endpoint",
            account.excluded
        ));
    }
    lines.extend(account.unavailable_counters.iter().map(ToString::to_string));
    for counter in account.drop_counters.iter().filter(|counter| counter.moved() > 0) {
        let layer = counter.layer;
        let own = if counter.own { "" } else { " (shared with other streams)" };
        lines.push(format!(
            "{layer} {} {}: {} → {}{own}",
            counter.scope, counter.counter, counter.before, counter.after
        ));
    }
    if let Some(host) = account.host.as_ref().filter(|host| host.pool_blocks > 0) {
        let longest = host.members.iter().map(|it| it.longest_write_ns).max().unwrap_or(0);
        lines.push(format!(
            "at most {} of {} blocks were in use, the longest write took {:.1} ms",
            host.high_water,
            host.pool_blocks,
            longest as f64 / 1e6
        ));
        lines.extend(
            host.high_water_history
                .as_ref()
                .and_then(|history| high_water_line(history, host.pool_blocks, ROW)),
        );
    }
    lines.extend(account.clock.map(|clock| format!("its time stamps lie {clock}")));
    lines.extend(gaps(account, &time_of, gaps_shown));
    for flow in &account.flows {
        lines.push(format!(
            "station {} thread {}: {} expected, {} written",
            flow.station, flow.thread, flow.terms.expected, flow.terms.written
        ));
        lines.extend(presence_of(flow));
    }
    lines.iter().map(|line| format!("  {name}: {line}\n")).collect()
}

/// The times when one of several threads was absent.
fn presence_of(flow: &Flow) -> Vec<String> {
    let Flow { station, thread, presence, .. } = flow;
    presence.iter().map(|it| format!("station {station} thread {thread} {it}")).collect()
}

/// The first gaps and their causes, and the number of further gaps.
fn gaps(account: &Account, time_of: &impl Fn(i64) -> Option<Tai>, shown: usize) -> Vec<String> {
    let why = account.why_overrun();
    let gap = |gap: &Gap| match why.as_ref().filter(|_| gap.cause == Cause::Overrun) {
        Some(why) => format!("{} ({why})", told(gap, time_of)),
        None => told(gap, time_of),
    };
    let mut lines: Vec<String> = account.gaps.iter().take(shown).map(gap).collect();
    let more = account.gaps.len().saturating_sub(shown);
    if more > 0 {
        lines.push(format!("and {} more", count(more, "gap")));
    }
    if account.gaps_unlisted > 0 {
        lines.push(format!(
            "and {} more that are counted but not listed",
            count(account.gaps_unlisted as usize, "gap")
        ));
    }
    lines
}

/// The time of a frame, interpolated between the first and the last frame of its stream by index.
pub fn time_between(account: &Account) -> impl Fn(i64) -> Option<Tai> + use<> {
    let edges = account.first.zip(account.last).filter(|_| account.flows.is_empty());
    move |index| {
        let (first, last) = edges?;
        let (from, to) = (first.time?, last.time?);
        let frames = last.index.checked_sub(first.index).filter(|it| *it > 0)?;
        let done = i128::from(index.checked_sub(first.index)?);
        let ns = i128::from(to.since(from)) * done / i128::from(frames);
        Some(from.plus_ns(i64::try_from(ns).ok()?))
    }
}

/// The most characters of a row of the high-water mark over time.
pub const ROW: usize = 60;

/// The high-water mark over time: a row of characters from the scan's beginning to its end, and its maximum.
pub fn high_water_line(history: &HighWaterHistory, blocks: u64, signs: usize) -> Option<String> {
    let (at_ms, most) = history.peak()?;
    let lasted = history.step_ms as f64 * history.blocks.len() as f64 / 1e3;
    Some(format!(
        "high water |{}| over {lasted:.1} s, {most} of {blocks} blocks at {:.1} s",
        history.row(signs, blocks),
        at_ms as f64 / 1e3
    ))
}

fn told(gap: &Gap, time_of: &impl Fn(i64) -> Option<Tai>) -> String {
    let frames = match gap.count {
        1 => format!("frame {}", gap.first),
        count => format!("{count} frames from {} on", gap.first),
    };
    let time = time_of(gap.first).map_or(String::new(), |time| format!(", {time}"));
    format!("{frames} {}{time}", gap.cause)
}

#[cfg(test)]
mod tests {
    use fullbore_core::account::{Host, HostMember};

    use super::*;

    fn account(written: u64, missing: u64) -> Account {
        let mut account = Account::new(CountedBy::FrameTime);
        account.terms = Terms { expected: written + missing, written, missing, ..Terms::default() };
        account.push_gap(Gap { first: 7, count: missing, cause: Cause::Missing });
        account.filled = missing;
        account.verdict = account.judge();
        account
    }

    #[test]
    fn the_table_shows_the_balance_and_its_sum() {
        let (a, b) = (account(1000, 0), account(998, 2));
        let expected = "\
stream  expected  written  missing  overrun  damaged  late  filled  verdict
46221       1000      998        2        0        0     0       2  unexplained
46220       1000     1000        0        0        0     0       0  proven
all         2000     1998        2        0        0     0       2  unexplained
";
        assert_eq!(table([("46220", &a), ("46221", &b)]), expected);
    }

    #[test]
    fn a_count_begun_anew_is_told_where_nothing_is_missing() {
        let mut anew = account(1000, 0);
        anew.restarts = 1;
        let text = "  a: the sender restarted its count once: the frames in between are unknown\n";
        assert_eq!(details("a", &anew, |_| None, 5), text);
    }

    #[test]
    fn a_gap_that_was_overrun_says_why() {
        let mut full = Account::new(CountedBy::FrameTime);
        full.terms = Terms { expected: 1000, written: 993, overrun: 7, ..Terms::default() };
        full.push_gap(Gap { first: 40, count: 7, cause: Cause::Overrun });
        let failure = Some("the disk is full".to_owned());
        let member = HostMember { path: "/data".into(), longest_write_ns: 2_500_000, failure };
        full.host = Some(Host {
            pool_blocks: 64,
            high_water: 9,
            members: vec![member],
            high_water_history: None,
        });
        let text = "  a: at most 9 of 64 blocks were in use, the longest write took 2.5 ms\n  \
                    a: 7 frames from 40 on overrun (the disk is full)\n";
        assert_eq!(details("a", &full, |_| None, 5), text);
    }

    #[test]
    fn a_list_of_gaps_that_is_cut_says_how_many_are_not_in_it() {
        let mut cut = account(990, 2);
        cut.push_gap(Gap { first: 70, count: 8, cause: Cause::Missing });
        (cut.terms.missing, cut.gaps_unlisted) = (30, 9);
        let text = "  a: 2 frames from 7 on missing\n  a: and 1 gap more\n  \
                    a: and 9 gaps more that are counted but not listed\n";
        assert_eq!(details("a", &cut, |_| None, 1), text);
    }

    #[test]
    fn details_tell_gaps_with_their_time() {
        let text = details("46221", &account(998, 2), |_| None, 5);
        assert_eq!(text, "  46221: 2 frames from 7 on missing\n");
    }
}
