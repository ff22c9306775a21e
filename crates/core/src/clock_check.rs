//! Compares the timestamps of a stream with the host's clock: offset and drift.
//!
//! ```text
//! behind = host's clock when a frame was there − the time in the frame
//!
//!  behind │   .       :  .            a network and a busy host only add,
//!         │ .  : . .   .: .  .        so the least of each step is what counts
//!         │._.__.___._.___.__._.      and how that least rises or falls is the drift
//!         └──────────────────────► host's clock
//! ```
//!
//! [`ClockMonitor`] observes one stream of one scan and keeps a bounded number of steps for any duration.
//! [`ClockReporter`] reports the problems of all streams of a recording, each once. Neither reads a clock.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use fullbore_time::Tai;
use serde::{Deserialize, Serialize};

const NS: i64 = 1_000_000_000;

/// Time between two observations of a stream.
const BETWEEN_LOOKS_NS: i64 = 10_000_000;

/// The shortest step; the monitor keeps the minimum of each step.
const SHORTEST_STEP_NS: i64 = 250_000_000;

/// The largest number of steps; when they are full, two neighbours are merged.
const MOST_STEPS: usize = 128;

/// From this duration on, the offset of a stream from the host's clock is known …
const SURE_NS: i64 = 2 * NS;

/// … and from this duration on, its drift.
const LONG_NS: i64 = 8 * NS;

/// The drift is computed from the minimum of this many equal parts of the time. A stall shorter than one part has no
/// effect.
const PARTS: usize = 8;

/// A rate that is less certain than this says nothing about a clock, and the text leaves it out.
const VAGUE_PPB: u64 = 100_000;

/// A stream whose rate differs by more than this is not sent in real time.
const NOT_IN_REAL_TIME_PPB: i64 = 50_000_000;

/// A stream whose timestamps differ from the host's clock by more than this is not live.
const LONG_AGO_NS: i64 = 86_400 * NS;

/// Observations before a [`ClockReporter`] reports a problem, so that the problems of several streams are reported
/// together.
const PATIENCE: u32 = 4;

/// The maximum number of reports for one stream.
const MOST_SAID: u32 = 10;

/// The offset of a stream's timestamps from the host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// The delay of the timestamps behind the host's clock when their frames arrived; negative: ahead of it. This is
    /// the median over the steps of each step's minimum, because a network and a busy host only add delay.
    pub behind_ns: i64,
    /// The minimum of all steps.
    pub least_ns: i64,
    /// The maximum of all steps.
    pub most_ns: i64,
    /// Duration of the observation.
    pub over_ns: i64,
    /// The drift of the stream, if the duration was long enough to measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// True if the kernel reported that the host's own clock was not synchronised when the scan ended. `None`: not
    /// reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_synchronised: Option<bool>,
}

/// The drift of a stream's timestamps against the host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drift {
    /// Rate error in parts in 10⁹; positive: too fast, negative: too slow.
    pub ppb: i64,
    /// Uncertainty of `ppb`, as far as the stream itself shows it: the largest distance of any part from a straight
    /// line, over the whole time.
    pub uncertain_ppb: u64,
}

impl Drift {
    /// True if the drift exceeds a limit with certainty.
    fn exceeds(&self, limit_ppb: i64) -> bool {
        let uncertain = i64::try_from(self.uncertain_ppb).unwrap_or(i64::MAX);
        self.ppb.saturating_abs().saturating_sub(uncertain) > limit_ppb
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ppm, uncertain) = (self.ppb as f64 / 1e3, self.uncertain_ppb as f64 / 1e3);
        write!(f, "{ppm:+.1} ± {uncertain:.1} ppm")
    }
}

impl ClockOffset {
    /// True if the observation was long enough for a reliable offset.
    fn is_sure(&self) -> bool {
        self.over_ns >= SURE_NS
    }
}

impl fmt::Display for ClockOffset {
    /// `0.003 s behind the host's clock (which is not synchronised), rate error +1.2 ± 3.0 ppm`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} the host's clock", Distance(self.behind_ns))?;
        if self.host_synchronised == Some(false) {
            f.write_str(" (which is not synchronised)")?;
        }
        match self.drift {
            Some(drift) if drift.exceeds(NOT_IN_REAL_TIME_PPB) => {
                write!(f, ", {} as fast", times(drift.ppb))
            }
            Some(drift) if drift.uncertain_ppb <= VAGUE_PPB => write!(f, ", rate error {drift}"),
            Some(_) | None => Ok(()),
        }
    }
}

/// `1.000 s behind`, `0.250 s ahead of`, with a precision that fits the size.
struct Distance(i64);

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.unsigned_abs() as f64 / 1e9;
        match seconds {
            _ if seconds >= 2.0 * 365.25 * 86_400.0 => {
                write!(f, "{:.1} years", seconds / (365.25 * 86_400.0))?
            }
            _ if seconds >= 2.0 * 86_400.0 => write!(f, "{:.1} days", seconds / 86_400.0)?,
            _ if seconds >= 2.0 * 3600.0 => write!(f, "{:.2} h", seconds / 3600.0)?,
            _ => write!(f, "{seconds:.3} s")?,
        }
        f.write_str(if self.0 >= 0 { " behind" } else { " ahead of" })
    }
}

/// Returns `3.2 times` for a stream that is too fast by this factor.
fn times(ppb: i64) -> String {
    format!("{:.2} times", 1.0 + ppb as f64 / 1e9)
}

/// Monitors the clock of one stream within one scan.
#[derive(Clone, Debug, Default)]
pub struct ClockMonitor {
    /// The times of the first and the last observation.
    span: Option<(Tai, Tai)>,
    /// The minimum of each step, in order; steps without observations are left out.
    steps: Vec<Step>,
    /// The length of a step; 0: unknown, because nothing was observed.
    step_ns: i64,
}

/// The minimum observed in a step.
#[derive(Clone, Copy, Debug)]
struct Step {
    number: i64,
    /// Time since the first observation.
    at_ns: i64,
    behind_ns: i64,
}

impl ClockMonitor {
    /// True if the next observation is due. Call it for the first frame of a read, because that frame had surely
    /// arrived.
    #[inline]
    pub fn wants(&self, now: Tai) -> bool {
        self.span.is_none_or(|(_, last)| now.since(last) >= BETWEEN_LOOKS_NS)
    }

    /// Observes a frame that was present at `now`, by the host's clock, and carries the time `stamp`.
    pub fn look(&mut self, stamp: Tai, now: Tai) {
        let (first, last) = self.span.unwrap_or((now, now));
        self.step_ns = self.step_ns.max(SHORTEST_STEP_NS);
        // `now` is monotonic.
        let now = now.max(last);
        self.span = Some((first, now));
        let (at_ns, behind_ns) = (now.since(first), now.since(stamp));
        let number = at_ns / self.step_ns;
        match self.steps.last_mut() {
            Some(step) if step.number == number => {
                if behind_ns < step.behind_ns {
                    (step.at_ns, step.behind_ns) = (at_ns, behind_ns);
                }
            }
            _ => {
                self.steps.push(Step { number, at_ns, behind_ns });
                while self.steps.len() > MOST_STEPS {
                    self.halve();
                }
            }
        }
    }

    /// Merges pairs of neighbours; the lower value of both remains.
    fn halve(&mut self) {
        self.step_ns = self.step_ns.saturating_mul(2);
        let mut halved: Vec<Step> = Vec::with_capacity(MOST_STEPS);
        for step in self.steps.drain(..) {
            let step = Step { number: step.number / 2, ..step };
            match halved.last_mut() {
                Some(before) if before.number == step.number => {
                    if step.behind_ns < before.behind_ns {
                        *before = step;
                    }
                }
                _ => halved.push(step),
            }
        }
        self.steps = halved;
    }

    /// Returns the offset observed so far, if there is any.
    pub fn clock_offset(&self) -> Option<ClockOffset> {
        let (first, last) = self.span?;
        let mut all: Vec<i64> = self.steps.iter().map(|step| step.behind_ns).collect();
        all.sort_unstable();
        Some(ClockOffset {
            behind_ns: all[(all.len() - 1) / 2],
            least_ns: all[0],
            most_ns: all[all.len() - 1],
            over_ns: last.since(first),
            drift: self.drift(),
            host_synchronised: None,
        })
    }

    /// Returns the current delay behind the host's clock, from the newest complete steps, for live display.
    pub fn recent_ns(&self) -> Option<i64> {
        let over = self.steps.len().checked_sub(1)?;
        self.steps[over.saturating_sub(2)..over].iter().map(|step| step.behind_ns).min()
    }

    /// Returns the slope of the minimum of each part of the time, and the distance of the parts from a straight line.
    fn drift(&self) -> Option<Drift> {
        let (first, last) = self.span?;
        let over_ns = last.since(first);
        if over_ns < LONG_NS {
            return None;
        }
        let origin = self.steps.first()?.behind_ns;
        let mut parts: [Option<(f64, f64)>; PARTS] = [None; PARTS];
        for step in &self.steps {
            let part = (step.at_ns as i128 * PARTS as i128 / (i128::from(over_ns) + 1)) as usize;
            let (at, behind) = (step.at_ns as f64, step.behind_ns.saturating_sub(origin) as f64);
            let least = &mut parts[part.min(PARTS - 1)];
            if least.is_none_or(|(_, least)| behind < least) {
                *least = Some((at, behind));
            }
        }
        let points: Vec<(f64, f64)> = parts.into_iter().flatten().collect();
        // A stream that paused for most of the time has too few points.
        if points.len() < PARTS / 2 {
            return None;
        }
        let count = points.len() as f64;
        let middle = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (at, behind) = (middle(|it| it.0), middle(|it| it.1));
        let across: f64 = points.iter().map(|it| (it.0 - at).powi(2)).sum();
        let slope =
            points.iter().map(|it| (it.0 - at) * (it.1 - behind)).sum::<f64>() / across.max(1.0);
        let off = |it: &(f64, f64)| (it.1 - behind - slope * (it.0 - at)).abs();
        let furthest = points.iter().map(off).fold(0.0, f64::max);
        let span = points[points.len() - 1].0 - points[0].0;
        // The stream falls behind by `slope` per second of the host's clock: it is too slow by that much.
        Some(Drift {
            ppb: (-slope * 1e9) as i64,
            uncertain_ppb: (3.0 * furthest / span.max(1.0) * 1e9) as u64 + 1,
        })
    }
}

/// The limits beyond which a recording warns about clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockLimits {
    /// The largest accepted offset of timestamps from the host's clock; `None`: unlimited.
    pub offset: Option<Duration>,
    /// The largest accepted difference from the nominal rate in parts in 10⁶, by the host's clock; `None`: unlimited.
    pub drift_ppm: Option<u32>,
}

impl Default for ClockLimits {
    /// The default offset limit of a tenth of a second is ten times the delay of a network, and a tenth of the error of
    /// a formatter that is set to the wrong second. The quartz of a host without synchronisation is good to 100 ppm; a
    /// stream timed by a maser must not be blamed for that.
    fn default() -> Self {
        Self { offset: Some(Duration::from_millis(100)), drift_ppm: Some(100) }
    }
}

/// The clock status of a stream while it runs.
#[derive(Clone, Copy, Debug)]
pub struct ClockStatus {
    /// The offset in the whole scan.
    pub offset: ClockOffset,
    /// [`ClockMonitor::recent_ns`].
    pub recent_ns: i64,
}

/// A warning about a clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockWarning {
    /// True if the state is probably intended.
    pub calm: bool,
    /// The text of the warning.
    pub text: String,
}

/// A problem of a stream's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Problem {
    /// The data is played back, or the clock was never set.
    LongAgo,
    /// The rate is far from real time.
    NotInRealTime,
    /// The offset exceeds its limit.
    Offset,
    /// The drift exceeds its limit.
    Drift,
}

/// Reports clock problems of the streams of a recording.
#[derive(Debug, Default)]
pub struct ClockReporter {
    limits: ClockLimits,
    streams: BTreeMap<String, StreamReports>,
    /// Observations since a problem was found that is not reported yet.
    waited: u32,
}

#[derive(Debug, Default)]
struct StreamReports {
    /// Problems that were reported and have not cleared.
    said: Vec<Problem>,
    times: u32,
    /// The problem to be reported, and its figures.
    pending: Option<(Problem, ClockOffset, i64)>,
}

impl ClockReporter {
    /// Returns a reporter with these limits.
    pub fn new(limits: ClockLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Takes the status of the streams, a few times a second. Returns the warnings to print now. Problems that several
    /// streams show at about the same time are reported together.
    pub fn hear<'a>(
        &mut self,
        streams: impl IntoIterator<Item = (&'a str, ClockStatus)>,
        host_synchronised: Option<bool>,
    ) -> Vec<ClockWarning> {
        let mut all = 0;
        for (name, state) in streams {
            all += 1;
            let found = found(&state, self.limits);
            let good = is_good_again(&state, self.limits);
            let of = self.streams.entry(name.to_owned()).or_default();
            if good {
                of.said.retain(|matter| !matches!(matter, Problem::Offset | Problem::LongAgo));
            }
            match found.filter(|matter| !of.said.contains(matter) && of.times < MOST_SAID) {
                Some(matter) => of.pending = Some((matter, state.offset, state.recent_ns)),
                None => of.pending = None,
            }
        }
        let pending = self.streams.values().any(|of| of.pending.is_some());
        self.waited = if pending { self.waited + 1 } else { 0 };
        if self.waited < PATIENCE {
            return Vec::new();
        }
        self.waited = 0;
        self.speak(all, host_synchronised)
    }

    fn speak(&mut self, all: usize, host_synchronised: Option<bool>) -> Vec<ClockWarning> {
        let mut groups: BTreeMap<Problem, Vec<(&str, ClockOffset, i64)>> = BTreeMap::new();
        for (name, of) in &mut self.streams {
            let Some((matter, wall, lately)) = of.pending.take() else { continue };
            of.times += 1;
            of.said.push(matter);
            groups.entry(matter).or_default().push((name, wall, lately));
        }
        groups.iter().map(|(matter, of)| said(*matter, of, all, host_synchronised)).collect()
    }
}

/// Returns the first problem of a stream.
fn found(state: &ClockStatus, limits: ClockLimits) -> Option<Problem> {
    let ClockStatus { offset: wall, recent_ns: lately_ns } = state;
    let beyond = |limit: Duration| u128::from(lately_ns.unsigned_abs()) > limit.as_nanos();
    let drifts = |ppb: i64| wall.drift.is_some_and(|drift| drift.exceeds(ppb));
    match limits {
        _ if !wall.is_sure() => None,
        ClockLimits { offset: Some(_), .. } if lately_ns.abs() >= LONG_AGO_NS => {
            Some(Problem::LongAgo)
        }
        ClockLimits { drift_ppm: Some(_), .. } if drifts(NOT_IN_REAL_TIME_PPB) => {
            Some(Problem::NotInRealTime)
        }
        ClockLimits { drift_ppm: Some(limit), .. } if drifts(i64::from(limit) * 1000) => {
            Some(Problem::Drift)
        }
        ClockLimits { offset: Some(limit), .. } if beyond(limit) => Some(Problem::Offset),
        _ => None,
    }
}

/// True if its timestamps are well within the limit, so that leaving it is reported again.
fn is_good_again(state: &ClockStatus, limits: ClockLimits) -> bool {
    let behind = u128::from(state.recent_ns.unsigned_abs());
    limits.offset.is_some_and(|limit| 2 * behind < limit.as_nanos())
}

/// Returns the warning for streams with the same problem. There are `all` streams.
fn said(
    matter: Problem,
    of: &[(&str, ClockOffset, i64)],
    all: usize,
    host_synchronised: Option<bool>,
) -> ClockWarning {
    let names = named(of.iter().map(|(name, ..)| *name));
    let (least, most) = ends(of.iter().map(|(_, _, lately)| *lately));
    let range = match most - least < NS / 100 || least.signum() != most.signum() {
        true => Distance(if least.abs() > most.abs() { least } else { most }).to_string(),
        false => format!("{} to {}", Distance(least), Distance(most)),
    };
    // Independent senders rarely have the same offset.
    let alike = of.len() > 1 && of.len() == all && most - least < NS / 10;
    let whose = match (host_synchronised, alike) {
        (Some(false), _) => "; the host's own clock is not synchronised",
        (_, true) => "; all streams agree, so it may be the host's clock that is wrong",
        _ => "",
    };
    let drifts = || of.iter().filter_map(|(_, wall, _)| wall.drift);
    let text = match matter {
        Problem::LongAgo => format!(
            "{names}: the time stamps lie {range} the host's clock: something that was recorded then, or a sender whose \
             clock was never set"
        ),
        Problem::NotInRealTime => {
            let (slowest, fastest) = ends(drifts().map(|drift| drift.ppb));
            let fast = match times(slowest) == times(fastest) {
                true => times(fastest),
                false => format!("{} to {}", times(slowest), times(fastest)),
            };
            format!(
                "{names}: data arrives {fast} as fast as its timestamps: it is not sent in real time"
            )
        }
        Problem::Offset => {
            format!("{names}: the time stamps lie {range} the host's clock{whose}")
        }
        Problem::Drift => {
            let drift = drifts().max_by_key(|drift| drift.ppb.abs());
            let drift = drift.map_or(String::new(), |drift| drift.to_string());
            let whose = match host_synchronised {
                Some(false) => "; the host's own clock is not synchronised",
                _ => "",
            };
            format!("{names}: the rate is {drift} from the nominal one, by the host's clock{whose}")
        }
    };
    ClockWarning { calm: matches!(matter, Problem::LongAgo | Problem::NotInRealTime), text }
}

fn ends(values: impl Iterator<Item = i64>) -> (i64, i64) {
    values.fold((i64::MAX, i64::MIN), |(least, most), value| (least.min(value), most.max(value)))
}

/// `46220`, `46220, 46221 and 46222`, `46220, 46221 and 14 others`.
fn named<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.as_slice() {
        [one] => (*one).to_owned(),
        [first @ .., last] if names.len() <= 4 => format!("{} and {last}", first.join(", ")),
        _ => format!("{}, {} and {} others", names[0], names[1], names.len() - 2),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AT: Tai = Tai(1_795_284_000 * NS);

    /// Returns a monitor of a stream that is `ppb` too fast and starts with this delay; each observation comes after
    /// `delay`.
    fn watched(
        seconds: i64,
        ppb: i64,
        behind_ns: i64,
        mut delay: impl FnMut(i64) -> i64,
    ) -> ClockMonitor {
        let mut watch = ClockMonitor::default();
        for look in 0..seconds * 20 {
            let sent = look * NS / 20;
            let stamp = sent + (i128::from(sent) * i128::from(ppb) / 1_000_000_000) as i64;
            let now = AT.plus_ns(sent + delay(look));
            if watch.wants(now) {
                watch.look(AT.plus_ns(stamp - behind_ns), now);
            }
        }
        watch
    }

    fn state(watch: &ClockMonitor) -> ClockStatus {
        ClockStatus { offset: watch.clock_offset().unwrap(), recent_ns: watch.recent_ns().unwrap() }
    }

    /// Returns all warnings about these streams in ten seconds.
    fn told(streams: &[(&str, &ClockMonitor)], synchronised: Option<bool>) -> Vec<ClockWarning> {
        let mut teller = ClockReporter::new(ClockLimits::default());
        let all: Vec<(&str, ClockStatus)> =
            streams.iter().map(|(name, watch)| (*name, state(watch))).collect();
        (0..40).flat_map(|_| teller.hear(all.iter().copied(), synchronised)).collect()
    }

    #[test]
    fn a_stream_that_keeps_the_time_is_not_spoken_of() {
        let good = watched(60, 0, 2_000_000, |look| (look * 7919 % 40) * 1_000_000);
        assert_eq!(told(&[("a", &good)], Some(true)), []);
        let wall = good.clock_offset().unwrap();
        assert!((2_000_000..4_000_000).contains(&wall.behind_ns), "{wall:?}");
        let drift = wall.drift.unwrap();
        assert!(drift.ppb.unsigned_abs() <= drift.uncertain_ppb, "{drift}");
    }

    #[test]
    fn a_second_off_is_told_once_with_the_figure() {
        let late = watched(10, 0, NS, |look| look % 3 * 5_000_000);
        let ahead = watched(10, 0, -NS, |_| 0);
        let said = told(&[("a", &late)], Some(true));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].text.contains("a: the time stamps lie 1.000 s behind"), "{said:?}");
        assert!(!said[0].calm);
        let said = told(&[("a", &ahead)], Some(false));
        assert!(said[0].text.contains("1.000 s ahead of the host's clock"), "{said:?}");
        assert!(said[0].text.contains("not synchronised"), "{said:?}");
    }

    #[test]
    fn a_stream_that_is_looked_at_for_a_moment_is_not_judged() {
        let short = watched(1, 0, 5 * NS, |_| 0);
        assert_eq!(told(&[("a", &short)], None), []);
        assert_eq!(short.clock_offset().unwrap().behind_ns, 5 * NS, "but its figure is kept");
        assert_eq!(watched(7, 300_000, 0, |_| 0).clock_offset().unwrap().drift, None);
    }

    #[test]
    fn recordings_of_years_ago_are_told_of_once_and_calmly_however_many_streams() {
        let old = watched(30, 0, 12 * 365 * 86_400 * NS, |look| look % 5 * 1_000_000);
        let names: Vec<String> = (0..16).map(|n| format!("s{n:02}")).collect();
        let streams: Vec<(&str, &ClockMonitor)> =
            names.iter().map(|name| (name.as_str(), &old)).collect();
        let said = told(&streams, Some(false));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].calm);
        assert!(said[0].text.starts_with("s00, s01 and 14 others: "), "{said:?}");
        assert!(said[0].text.contains("12.0 years behind"), "{said:?}");
    }

    #[test]
    fn streams_that_are_wrong_by_the_same_point_at_the_host() {
        let late = watched(10, 0, 3 * NS, |_| 0);
        let said = told(&[("a", &late), ("b", &late), ("c", &late)], Some(true));
        assert_eq!(said.len(), 1);
        assert!(said[0].text.contains("a, b and c"), "{said:?}");
        assert!(said[0].text.contains("may be the host's clock"), "{said:?}");
        let good = watched(10, 0, 0, |_| 0);
        let said = told(&[("a", &late), ("b", &good)], Some(true));
        assert!(!said[0].text.contains("may be"), "{said:?}");
    }

    #[test]
    fn a_drift_is_told_as_soon_as_it_is_sure_and_an_offset_it_leads_to_is_not() {
        let fast = watched(30, 400_000, 0, |look| look % 4 * 500_000);
        let said = told(&[("a", &fast)], Some(true));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].text.contains("+400.") || said[0].text.contains("+399."), "{said:?}");
        let unsure = watched(30, 400_000, 0, |look| {
            // The path grows slowly longer, now in steps and now back.
            [0, 40, 10, 70][(look / 100 % 4) as usize] * 1_000_000
        });
        assert_eq!(told(&[("a", &unsure)], None), [], "{:?}", unsure.clock_offset());
    }

    #[test]
    fn a_rate_that_says_nothing_about_the_clock_is_left_out() {
        let shown = |drift, host_synchronised| {
            let offset = watched(10, 0, 3_000_000, |_| 0).clock_offset().unwrap();
            ClockOffset { drift, host_synchronised, ..offset }.to_string()
        };
        let vague = Drift { ppb: 19_711_000, uncertain_ppb: 109_901_800 };
        assert_eq!(shown(Some(vague), Some(true)), "0.003 s behind the host's clock");
        let good = Drift { ppb: 1200, uncertain_ppb: 3000 };
        assert_eq!(
            shown(Some(good), Some(false)),
            "0.003 s behind the host's clock (which is not synchronised), rate error +1.2 ± 3.0 ppm"
        );
    }

    #[test]
    fn what_is_sent_flat_out_is_called_so_and_not_late() {
        let fast = watched(20, 2_000_000_000, 0, |_| 0);
        let said = told(&[("a", &fast)], None);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].calm && said[0].text.contains("3.00 times as fast"), "{said:?}");
    }

    #[test]
    fn what_became_good_and_bad_again_is_news_and_is_not_said_for_ever() {
        let (good, bad) = (watched(10, 0, 0, |_| 0), watched(10, 0, NS, |_| 0));
        let mut teller = ClockReporter::new(ClockLimits::default());
        let said = (0..1000)
            .map(|n| if n / 10 % 2 == 0 { &bad } else { &good })
            .map(|watch| teller.hear([("a", state(watch))], None).len())
            .sum::<usize>();
        assert_eq!(said, MOST_SAID as usize);
    }

    #[test]
    fn limits_that_are_off_say_nothing() {
        let bad = watched(30, 400_000, NS, |_| 0);
        let mut teller = ClockReporter::new(ClockLimits { offset: None, drift_ppm: None });
        assert!((0..40).all(|_| teller.hear([("a", state(&bad))], None).is_empty()));
    }

    proptest! {
        /// The environment only delays frames, and sometimes stops them for a while.
        #[test]
        fn what_is_said_of_a_rate_holds_whatever_the_network_adds(
            seconds in 10i64..2000,
            ppb in -1_000_000i64..1_000_000,
            behind in -5i64..5,
            delays in prop::collection::vec(0i64..30_000_000, 100),
            stall in 0i64..2_000_000_000,
            stalled in any::<prop::sample::Index>(),
        ) {
            let stalled = stalled.index(seconds as usize) as i64 * 20;
            let watch = watched(seconds, ppb, behind * NS, |look| {
                let delay = delays[(look % 100) as usize];
                // The delayed frames arrive together at the end of the stall.
                let held = stalled * NS / 20 + stall - look * NS / 20;
                if look >= stalled { delay.max(held) } else { delay }
            });
            let wall = watch.clock_offset().unwrap();
            prop_assert!(watch.steps.len() <= MOST_STEPS);
            prop_assert!(wall.least_ns <= wall.behind_ns && wall.behind_ns <= wall.most_ns);
            if let Some(drift) = wall.drift {
                let off = (drift.ppb - ppb).unsigned_abs();
                // Undetectable: delays that happen to form a line.
                let alike = 60_000_000 * 1_000 / (seconds as u64 * 1_000 / 1_000);
                prop_assert!(off <= drift.uncertain_ppb + alike, "{drift} for {ppb} ppb");
            }
        }
    }
}
