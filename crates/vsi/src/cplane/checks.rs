//! What the recorder has: `mstat?`, `list?`, `rtime?`, `scan_check?` and `status?`.

use super::{RUNTIME, done, group_name, message, refused, refused_by};
use crate::line::Statement;
use crate::reply::{Code, Reply};
use crate::station::{Activity, Facts, ScanFacts, Station};
use crate::vex_time;

/// The newest scans that `list?` names.
const LISTED: usize = 20;

/// A store with a smaller share of its space free is full.
const FULL_BELOW: f64 = 0.005;

/// Bits of `status?`.
mod bit {
    pub(super) const READY: u32 = 1;
    pub(super) const ERROR: u32 = 1 << 1;
    pub(super) const RECORD: u32 = 1 << 4;
    pub(super) const FULL: u32 = 1 << 5;
    pub(super) const BURST: u32 = 1 << 6;
    pub(super) const LOST: u32 = 1 << 7;
    pub(super) const UP: u32 = 1 << 8;
    pub(super) const CONFIGURED: u32 = 1 << 9;
}

/// Block memory in use from which the recorder lives from its buffer.
const BURST_FROM: f64 = 0.5;

/// `mstat?`: `group : members : GB left : GB in all`, then the directory of each member.
pub(super) fn members(station: &dyn Station) -> Reply {
    let space = station.space();
    let sizes = [space.free_bytes, space.total_bytes].map(gigabytes);
    let told = done().with(group_name(station)).with(space.members.len().to_string());
    told.with_all(sizes).with_all(space.members)
}

/// `list?`: the number of scans, then `number : scan : GB` of the newest ones.
pub(super) fn list(station: &dyn Station) -> Reply {
    let scans = station.scans();
    let first = scans.len().saturating_sub(LISTED);
    let told = scans.iter().enumerate().skip(first);
    let told =
        told.flat_map(|(at, it)| [(at + 1).to_string(), it.name.clone(), gigabytes(it.bytes)]);
    done().with_all([group_name(station), scans.len().to_string()]).with_all(told)
}

/// `rtime?`: `group : Gbit/s : seconds : GB left : GB in all`. Without a recording there is no rate, and no time.
pub(super) fn time_left(station: &dyn Station) -> Reply {
    let space = station.space();
    let rate = match station.activity(RUNTIME) {
        Activity::Running(running) => running.traffic.rate,
        Activity::Idle { .. } => 0,
    };
    let seconds =
        space.free_bytes.checked_div(rate).map_or_else(|| "?".to_owned(), |it| it.to_string());
    let rate = format!("{:.3}", rate as f64 * 8.0 / 1e9);
    let sizes = [space.free_bytes, space.total_bytes].map(gigabytes);
    done().with_all([group_name(station), rate, seconds]).with_all(sizes)
}

/// `scan_check?[<scan>]`: `scan : OK|data? : format : start : seconds : GB : Gbit/s : missing bytes`, of the newest scan
/// without a name. `None` while it is being read.
pub(super) fn scan(station: &mut dyn Station, statement: &Statement) -> Option<Reply> {
    let wanted = statement.field(0);
    let found = match wanted {
        "" => station.scans().last(),
        name => station.scans().iter().rev().find(|it| it.name == name),
    };
    let Some(name) = found.map(|it| it.name.clone()) else {
        return Some(refused_by(Code::Failed, message::NO_SCAN));
    };
    Some(match station.facts(&name) {
        Facts::Reading => return None,
        Facts::Failed(why) => refused(Code::Failed, message::NO_SCAN, &why),
        Facts::Known(facts) => told(&name, &facts),
    })
}

fn told(name: &str, facts: &ScanFacts) -> Reply {
    let unknown = || "?".to_owned();
    let verdict = match (facts.start, facts.missing_bytes) {
        (None, _) => "time?",
        (_, Some(0)) => "OK",
        _ => "data?",
    };
    let rate = facts.seconds.filter(|it| *it > 0.0).map(|it| facts.bytes as f64 * 8.0 / it / 1e9);
    done().with_all([name, verdict]).with_all([
        facts.format.clone().unwrap_or_else(unknown),
        facts.start.map_or_else(unknown, vex_time::to_text),
        facts.seconds.map_or_else(unknown, |it| format!("{it:.5}")),
        gigabytes(facts.bytes),
        rate.map_or_else(unknown, |it| format!("{it:.3}")),
        facts.missing_bytes.map_or_else(unknown, |it| it.to_string()),
    ])
}

/// `status?`: the bits of the state.
pub(super) fn status(station: &dyn Station, is_configured: bool) -> Reply {
    let mut bits = bit::READY | bit::UP;
    bits |= if is_configured { bit::CONFIGURED } else { 0 };
    match station.activity(RUNTIME) {
        Activity::Running(running) => {
            bits |= bit::RECORD;
            bits |= if running.traffic.lost > 0 { bit::LOST } else { 0 };
            bits |= if running.traffic.fill >= BURST_FROM { bit::BURST } else { 0 };
        }
        Activity::Idle { last: Some(last) } if last.problem.is_some() => bits |= bit::ERROR,
        Activity::Idle { .. } => {}
    }
    let space = station.space();
    if space.total_bytes > 0 && (space.free_bytes as f64) < space.total_bytes as f64 * FULL_BELOW {
        bits |= bit::FULL;
    }
    done().with(format!("{bits:#010x}"))
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.3}", bytes as f64 / 1e9)
}
