//! Facts of a summary beside the streams: common facts, and the state of the recorder.

use fullbore_core::account::{Account, DropCounter, Host, Presence};
use fullbore_core::completeness::{grouped, seconds};

use super::{NAMES, Stream, ranges};
use crate::account_table::{BESIDE, ROW, high_water_line};

/// Columns of the high-water line that are reserved for its figures.
const FIGURES: usize = 60;

/// The most counters that are named.
const COUNTERS: usize = 3;

/// Facts that hold for several streams, each printed once.
pub fn shared(streams: &[Stream<'_>]) -> Vec<String> {
    let began = spread(streams, |it| match *it {
        Presence::CameLate { ns } => Some(ns),
        _ => None,
    });
    let ended = spread(streams, |it| match *it {
        Presence::WentEarly { ns } => Some(ns),
        _ => None,
    });
    let began = began.map(|(who, time)| (who, format!("began {time} after arming")));
    let ended = ended.map(|(who, time)| (who, format!("ended {time} before the limit")));
    let mut facts: Vec<String> = match (began, ended) {
        (Some((who, began)), Some((other, ended))) if who == other => {
            vec![format!("{who}: {began}, {ended}")]
        }
        (began, ended) => {
            began.into_iter().chain(ended).map(|(who, what)| format!("{who}: {what}")).collect()
        }
    };
    facts.extend(clocks(streams));
    facts.extend(counts(streams));
    facts
}

/// The affected streams, and the range of values: `all 8 streams` and `1.3 s`, or `46220, 46221` and `1.3 to 2.0 s`.
fn spread(
    streams: &[Stream<'_>],
    of: impl Fn(&Presence) -> Option<i64>,
) -> Option<(String, String)> {
    let presence = |it: &Stream<'_>| it.account.presence.iter().find_map(&of);
    let each = streams.iter().filter_map(|it| Some((it.name, presence(it)?)));
    let (names, times): (Vec<&str>, Vec<i64>) = each.unzip();
    let (least, most) = (seconds(*times.iter().min()?), seconds(*times.iter().max()?));
    let time = match least == most {
        true => most,
        false => format!("{} to {most}", least.trim_end_matches(" s")),
    };
    Some((named(&names, streams.len()), time))
}

/// The offset of time stamps from the host's clock, for the stream with the largest.
fn clocks(streams: &[Stream<'_>]) -> Option<String> {
    let clocks = streams.iter().filter_map(|it| Some((it.name, it.account.clock?)));
    let with = clocks.clone().count();
    let (name, clock) = clocks.max_by_key(|(_, clock)| clock.behind_ns.unsigned_abs())?;
    let worst = if with > 1 { format!(" (worst: {name})") } else { String::new() };
    Some(format!("time stamps{worst}: {clock}"))
}

/// `all 8 streams`, or their names.
fn named(names: &[&str], all: usize) -> String {
    match names {
        some if some.len() == 2 && all == 2 => "both streams".to_owned(),
        some if some.len() == all && all > 2 => format!("all {all} streams"),
        some => ranges(some, NAMES),
    }
}

/// Nonzero counts beside the balance, with their streams.
fn counts(streams: &[Stream<'_>]) -> Option<String> {
    let told: Vec<String> = BESIDE
        .iter()
        // Fill replaces frames that the headline has counted.
        .filter(|(name, _)| *name != "filled")
        .filter_map(|(name, of)| {
            let with: Vec<&Stream<'_>> = streams.iter().filter(|it| of(it.account) > 0).collect();
            let sum = with.iter().map(|it| of(it.account)).fold(0, u64::saturating_add);
            let names: Vec<&str> = with.iter().map(|it| it.name).collect();
            let streams =
                if streams.len() > 1 { format!(" ({})", ranges(&names, 3)) } else { String::new() };
            (sum > 0).then(|| format!("{} {name}{streams}", grouped(sum)))
        })
        .collect();
    (!told.is_empty()).then(|| format!("also counted: {}", told.join(", ")))
}

/// Block memory, the longest write, and the loss counters of this host on one line.
pub fn recorder(streams: &[Stream<'_>]) -> Option<String> {
    let host = fullest(streams)?;
    let longest = hosts(streams).flat_map(|it| &it.members).map(|it| it.longest_write_ns).max();
    let mut text =
        format!("recorder: at most {} of {} blocks in use", host.high_water, host.pool_blocks);
    if let Some(longest) = longest {
        text += &format!(", longest write {:.1} ms", longest as f64 / 1e6);
    }
    Some(text + &counters(streams))
}

/// The high-water mark over time, if it was significant.
pub fn high_water(streams: &[Stream<'_>], columns: usize) -> Option<String> {
    let host = fullest(streams).filter(|it| it.high_water.saturating_mul(4) > it.pool_blocks)?;
    let signs = columns.saturating_sub(FIGURES).clamp(1, ROW);
    high_water_line(host.high_water_history.as_ref()?, host.pool_blocks, signs)
}

fn hosts<'a>(streams: &'a [Stream<'_>]) -> impl Iterator<Item = &'a Host> {
    streams.iter().filter_map(|it| it.account.host.as_ref()).filter(|it| it.pool_blocks > 0)
}

/// The state of the block memory with the highest use.
fn fullest<'a>(streams: &'a [Stream<'_>]) -> Option<&'a Host> {
    hosts(streams).max_by_key(|it| it.high_water.saturating_mul(1000) / it.pool_blocks)
}

/// True if all block memory was in use at a time.
pub fn was_full(streams: &[Stream<'_>]) -> bool {
    hosts(streams).any(|it| it.high_water >= it.pool_blocks)
}

/// True if a loss counter of this host moved.
pub fn counters_moved(streams: &[Stream<'_>]) -> bool {
    streams.iter().any(|it| moved(it.account).next().is_some())
}

fn moved(account: &Account) -> impl Iterator<Item = &DropCounter> {
    account.drop_counters.iter().filter(|it| it.moved() > 0)
}

/// The loss counters of this host with their increases. Counters shared by several streams are listed once.
fn counters(streams: &[Stream<'_>]) -> String {
    let mut told: Vec<String> = Vec::new();
    for counter in streams.iter().flat_map(|it| moved(it.account)) {
        let layer = counter.layer;
        let text =
            format!("{layer} {} {} +{}", counter.scope, counter.counter, grouped(counter.moved()));
        if !told.contains(&text) {
            told.push(text);
        }
    }
    // The verdict already states that none moved.
    let mut text = match told.len() {
        0 => String::new(),
        _ => format!("; loss counters that moved: {}", told[..told.len().min(COUNTERS)].join(", ")),
    };
    if told.len() > COUNTERS {
        text += &format!(" and {} more", told.len() - COUNTERS);
    }
    let unavailable = streams.iter().flat_map(|it| &it.account.unavailable_counters).next();
    if let Some(unavailable) = unavailable {
        text += &format!("; {unavailable}");
    }
    text
}
