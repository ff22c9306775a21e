//! The plan of a scan, and what a stream does not cover of it.

use fullbore_time::Tai;
use serde::{Deserialize, Serialize};

use crate::account::{Account, CountedBy, Edge, Flow, Presence};

/// A stream covers a planned start or end if it lacks no more than this: starts are not exact to the nanosecond.
pub const TOLERANCE_NS: i64 = 250_000_000;

/// … or no more than this many of its own frames.
const TOLERANCE_FRAMES: i64 = 4;

/// … but no more than this part of a planned scan, unless that is less than one of its frames.
const TOLERANCE_PART: i64 = 4;

/// The time in a frame is compared with the plan if it is this near to its arrival time. Otherwise the data is played
/// back or a clock is wrong, and the arrival time counts.
const LIVE_NS: u64 = 250_000_000;

/// A second, in nanoseconds.
const S: i64 = 1_000_000_000;

/// The planned start and end of a scan, as far as they were given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// The planned start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<Tai>,
    /// The planned end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Tai>,
}

impl Planned {
    /// True if a start or an end is planned.
    pub fn is_any(&self) -> bool {
        self.begin.is_some() || self.end.is_some()
    }

    /// Returns the planned duration.
    pub fn lasts_ns(&self) -> Option<i64> {
        Some(self.end?.since(self.begin?))
    }

    /// Returns the parts of the plan that a stream does not cover, at either end. A device that counts for itself is
    /// not compared: its acquisition begins when it is armed. A stream of several threads is not compared either: each
    /// of its threads is. `armed` replaces a start that was not planned, `stopped` such an end.
    pub fn lacking(
        &self,
        account: &Account,
        frames_per_second: Option<u64>,
        armed: Tai,
        stopped: Option<Tai>,
    ) -> Vec<Presence> {
        let ends = account.first.zip(account.last);
        let by_thread = ends.is_some() && !account.flows.is_empty();
        if by_thread || account.counted_by == CountedBy::ServerCount {
            return Vec::new();
        }
        self.lacks(ends, account.terms.expected, frames_per_second, (armed, stopped))
    }

    /// Returns the parts of the plan that a thread of a stream of several threads does not cover.
    pub fn lacking_of(
        &self,
        flow: &Flow,
        frames_per_second: Option<u64>,
        armed: Tai,
        stopped: Option<Tai>,
    ) -> Vec<Presence> {
        let ends = flow.first.zip(flow.last);
        self.lacks(ends, flow.terms.expected, frames_per_second, (armed, stopped))
    }

    fn lacks(
        &self,
        ends: Option<(Edge, Edge)>,
        expected: u64,
        frames_per_second: Option<u64>,
        (armed, stopped): (Tai, Option<Tai>),
    ) -> Vec<Presence> {
        if !self.is_any() {
            return Vec::new();
        }
        let frames = |ns: i64| {
            let frames = i128::from(ns) * i128::from(frames_per_second?);
            u64::try_from((frames + i128::from(S / 2)) / i128::from(S)).ok()
        };
        let Some((first, last)) = ends else {
            let end = self.end.or(stopped);
            let ns = end.map_or(0, |end| end.since(self.begin.unwrap_or(armed))).max(0);
            return vec![Presence::LacksBeginning { ns, frames: frames(ns) }];
        };
        let live =
            |edge: Edge| edge.time.filter(|time| edge.seen.since(*time).unsigned_abs() <= LIVE_NS);
        let when = |edge: Edge| live(edge).unwrap_or(edge.seen);
        let between = i64::try_from(expected.saturating_sub(1)).unwrap_or(i64::MAX);
        let period = last.seen.since(first.seen).checked_div(between).unwrap_or(0);
        let planned = self.lasts_ns();
        let tolerance = TOLERANCE_NS
            .max(period.saturating_mul(TOLERANCE_FRAMES))
            .min(planned.map_or(i64::MAX, |ns| ns / TOLERANCE_PART))
            .max(period);
        let late = self.begin.map_or(0, |begin| when(first).since(begin));
        // The last frame lasts until the start of the next one.
        let frame_ns =
            frames_per_second.map_or(period, |rate| S.checked_div(rate.cast_signed()).unwrap_or(0));
        let mut early = self.end.map_or(0, |end| end.since(when(last)).saturating_sub(frame_ns));
        // A slow sender goes on to the end and delivers too little data by then.
        if let (Some(planned), Some(from), Some(to)) = (planned, first.time, last.time)
            && (live(first).is_none() || live(last).is_none())
        {
            let data_ns = to.since(from).saturating_add(frame_ns);
            early = early.max(planned.saturating_sub(data_ns).saturating_sub(late.max(0)));
        }
        let beginning = Presence::LacksBeginning { ns: late, frames: frames(late) };
        let ending = Presence::LacksEnd { ns: early, frames: frames(early) };
        [(late, beginning), (early, ending)]
            .into_iter()
            .filter(|(ns, _)| *ns > tolerance)
            .map(|(_, presence)| presence)
            .collect()
    }
}
