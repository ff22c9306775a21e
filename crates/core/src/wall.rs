//! Whether a stream keeps the time of the host's clock: how far its time stamps lie from it, and how fast they go.
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
//! [`Watch`] looks at one stream of one scan and keeps a bounded number of steps, however long it lasts. [`Teller`]
//! says what there is to be said of all streams of a recording, each thing once. Neither has a clock of its own.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Tai;

const NS: i64 = 1_000_000_000;

/// Between two looks at a stream.
const BETWEEN_LOOKS_NS: i64 = 10_000_000;

/// The shortest step of which the least is kept.
const SHORTEST_STEP_NS: i64 = 250_000_000;

/// The most steps; when they are full, two neighbours become one.
const MOST_STEPS: usize = 128;

/// From this time on it is known how far a stream lies from the host's clock …
const SURE_NS: i64 = 2 * NS;

/// … and from this one on how fast it goes.
const LONG_NS: i64 = 8 * NS;

/// A drift is told from the least of so many equal parts of the time: a stall shorter than one of them leaves no trace.
const PARTS: usize = 8;

/// A stream that goes so much too fast or too slow is not sent in real time at all.
const NOT_IN_REAL_TIME_PPB: i64 = 50_000_000;

/// Time stamps that lie so far from the host's clock were not made just now.
const LONG_AGO_NS: i64 = 86_400 * NS;

/// Looks of a [`Teller`] before it speaks: what is found of several streams at once is told at once.
const PATIENCE: u32 = 4;

/// Times that one stream is spoken of at most.
const MOST_SAID: u32 = 10;

/// What the time stamps of a stream are against the host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wall {
    /// How far the time stamps lay behind the host's clock when their frames were there; negative: ahead of it. The
    /// least of each step of the scan, and of these the middle one: a network and a busy host only add.
    pub behind_ns: i64,
    /// The least of all steps.
    pub least_ns: i64,
    /// The most of all steps.
    pub most_ns: i64,
    /// For how long it was looked at.
    pub over_ns: i64,
    /// How much too fast or too slow the stream went, once the time was long enough to tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// Whether the kernel said that the host's own clock was not synchronised when the scan ended. Not there: it did
    /// not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_synchronised: Option<bool>,
}

/// How fast the time in a stream's frames goes by the host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drift {
    /// Too fast by so many parts in 10⁹; negative: too slow.
    pub ppb: i64,
    /// By so much that may be wrong, as far as the stream itself shows: the furthest that any part of the time lies
    /// from a straight line, over the whole time.
    pub uncertain_ppb: u64,
}

impl Drift {
    /// Whether it is beyond a limit for sure.
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

impl Wall {
    /// Whether it was looked at for long enough to say how far it lies from the host's clock.
    fn is_sure(&self) -> bool {
        self.over_ns >= SURE_NS
    }
}

impl fmt::Display for Wall {
    /// `0.003 s behind the host's clock, at +1.2 ± 3.0 ppm of its rate`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} the host's clock", Distance(self.behind_ns))?;
        match self.drift {
            Some(drift) if drift.exceeds(NOT_IN_REAL_TIME_PPB) => {
                write!(f, ", {} as fast", times(drift.ppb))?
            }
            Some(drift) => write!(f, ", its rate {drift} by it")?,
            None => {}
        }
        match self.host_synchronised {
            Some(false) => write!(f, " (which is not synchronised)"),
            Some(true) | None => Ok(()),
        }
    }
}

/// `1.000 s behind`, `0.250 s ahead of`, in words that fit its size.
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

/// `3.2 times`, for a stream that is too fast by so much.
fn times(ppb: i64) -> String {
    format!("{:.2} times", 1.0 + ppb as f64 / 1e9)
}

/// Looks at one stream of one scan.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// When it was looked at first, and last.
    span: Option<(Tai, Tai)>,
    /// The least of each step, in order; steps of which nothing was seen are left out.
    steps: Vec<Step>,
    /// 0: not yet known, as nothing was seen.
    step_ns: i64,
}

/// The least that was seen in a step.
#[derive(Clone, Copy, Debug)]
struct Step {
    number: i64,
    /// When, after the first look.
    at_ns: i64,
    behind_ns: i64,
}

impl Watch {
    /// Whether it is time for another look. Asked of the first frame that is read at a moment, since that one had
    /// surely come by then.
    #[inline]
    pub fn wants(&self, now: Tai) -> bool {
        self.span.is_none_or(|(_, last)| now.since(last) >= BETWEEN_LOOKS_NS)
    }

    /// Looks at a frame that was there at `now`, by the host's clock, and carries the time `stamp`.
    pub fn look(&mut self, stamp: Tai, now: Tai) {
        let (first, last) = self.span.unwrap_or((now, now));
        self.step_ns = self.step_ns.max(SHORTEST_STEP_NS);
        // The clock behind `now` does not go back.
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

    /// Two neighbours become one, with the less of both.
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

    /// What has been seen so far, if anything.
    pub fn wall(&self) -> Option<Wall> {
        let (first, last) = self.span?;
        let mut all: Vec<i64> = self.steps.iter().map(|step| step.behind_ns).collect();
        all.sort_unstable();
        Some(Wall {
            behind_ns: all[(all.len() - 1) / 2],
            least_ns: all[0],
            most_ns: all[all.len() - 1],
            over_ns: last.since(first),
            drift: self.drift(),
            host_synchronised: None,
        })
    }

    /// How far the newest steps that are over lie behind the host's clock, for whoever is to be told while it runs.
    pub fn lately_ns(&self) -> Option<i64> {
        let over = self.steps.len().checked_sub(1)?;
        self.steps[over.saturating_sub(2)..over].iter().map(|step| step.behind_ns).min()
    }

    /// The slope of the least of each part of the time, and how far these lie from a straight line.
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
        // A stream that paused for most of the time shows too little.
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
        // By `slope` more behind with each second of the host's clock, so in all that its own seconds lack.
        Some(Drift {
            ppb: (-slope * 1e9) as i64,
            uncertain_ppb: (3.0 * furthest / span.max(1.0) * 1e9) as u64 + 1,
        })
    }
}

/// What of it is warned about while a recording runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time stamps that lie further than this from the host's clock; `None`: never.
    pub offset: Option<Duration>,
    /// A rate that differs by more parts in 10⁶ than this from the nominal one, by the host's clock; `None`: never.
    pub drift_ppm: Option<u32>,
}

impl Default for Limits {
    /// A tenth of a second is ten times what a network adds, and a tenth of what a formatter is wrong by that was set to
    /// the wrong second. The quartz of a host that nobody disciplines is good to 100 ppm; what comes from a maser is not
    /// to be blamed for it.
    fn default() -> Self {
        Self { offset: Some(Duration::from_millis(100)), drift_ppm: Some(100) }
    }
}

/// How a stream stands while it runs.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// What was seen in the whole scan.
    pub wall: Wall,
    /// [`Watch::lately_ns`].
    pub lately_ns: i64,
}

/// Something to be said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Whether it is as somebody meant it, most likely.
    pub calm: bool,
    /// It.
    pub text: String,
}

/// What there is to say of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Matter {
    /// Played back, or never set.
    LongAgo,
    /// Faster or slower than its time stamps.
    NotInRealTime,
    /// Off.
    Offset,
    /// Too fast or too slow.
    Drift,
}

/// Says what there is to be said of the streams of a recording.
#[derive(Debug, Default)]
pub struct Teller {
    limits: Limits,
    streams: BTreeMap<String, Of>,
    /// Looks since something was found that is not yet said.
    waited: u32,
}

#[derive(Debug, Default)]
struct Of {
    /// What was said, and has not become good again.
    said: Vec<Matter>,
    times: u32,
    /// What is to be said, and the figures.
    pending: Option<(Matter, Wall, i64)>,
}

impl Teller {
    /// One that keeps to these limits.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Takes note of how the streams stand, a few times a second. Gives what is to be said now: what is found of several
    /// streams at about the same time is said at once.
    pub fn hear<'a>(
        &mut self,
        streams: impl IntoIterator<Item = (&'a str, Standing)>,
        host_synchronised: Option<bool>,
    ) -> Vec<Said> {
        let mut all = 0;
        for (name, standing) in streams {
            all += 1;
            let found = found(&standing, self.limits);
            let good = is_good_again(&standing, self.limits);
            let of = self.streams.entry(name.to_owned()).or_default();
            if good {
                of.said.retain(|matter| !matches!(matter, Matter::Offset | Matter::LongAgo));
            }
            match found.filter(|matter| !of.said.contains(matter) && of.times < MOST_SAID) {
                Some(matter) => of.pending = Some((matter, standing.wall, standing.lately_ns)),
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

    fn speak(&mut self, all: usize, host_synchronised: Option<bool>) -> Vec<Said> {
        let mut groups: BTreeMap<Matter, Vec<(&str, Wall, i64)>> = BTreeMap::new();
        for (name, of) in &mut self.streams {
            let Some((matter, wall, lately)) = of.pending.take() else { continue };
            of.times += 1;
            of.said.push(matter);
            groups.entry(matter).or_default().push((name, wall, lately));
        }
        groups.iter().map(|(matter, of)| said(*matter, of, all, host_synchronised)).collect()
    }
}

/// The first thing that is wrong with a stream.
fn found(standing: &Standing, limits: Limits) -> Option<Matter> {
    let Standing { wall, lately_ns } = standing;
    let beyond = |limit: Duration| u128::from(lately_ns.unsigned_abs()) > limit.as_nanos();
    let drifts = |ppb: i64| wall.drift.is_some_and(|drift| drift.exceeds(ppb));
    match limits {
        _ if !wall.is_sure() => None,
        Limits { offset: Some(_), .. } if lately_ns.abs() >= LONG_AGO_NS => Some(Matter::LongAgo),
        Limits { drift_ppm: Some(_), .. } if drifts(NOT_IN_REAL_TIME_PPB) => {
            Some(Matter::NotInRealTime)
        }
        Limits { drift_ppm: Some(limit), .. } if drifts(i64::from(limit) * 1000) => {
            Some(Matter::Drift)
        }
        Limits { offset: Some(limit), .. } if beyond(limit) => Some(Matter::Offset),
        _ => None,
    }
}

/// Whether its time stamps are well within the limit, so that it is news if they leave it.
fn is_good_again(standing: &Standing, limits: Limits) -> bool {
    let behind = u128::from(standing.lately_ns.unsigned_abs());
    limits.offset.is_some_and(|limit| 2 * behind < limit.as_nanos())
}

/// What is said of streams with the same trouble. There are `all` streams.
fn said(
    matter: Matter,
    of: &[(&str, Wall, i64)],
    all: usize,
    host_synchronised: Option<bool>,
) -> Said {
    let names = named(of.iter().map(|(name, ..)| *name));
    let (least, most) = ends(of.iter().map(|(_, _, lately)| *lately));
    let range = match most - least < NS / 100 || least.signum() != most.signum() {
        true => Distance(if least.abs() > most.abs() { least } else { most }).to_string(),
        false => format!("{} to {}", Distance(least), Distance(most)),
    };
    // Senders that have nothing to do with one another are seldom wrong by the same.
    let alike = of.len() > 1 && of.len() == all && most - least < NS / 10;
    let whose = match (host_synchronised, alike) {
        (Some(false), _) => "; the host's own clock is not synchronised",
        (_, true) => "; all streams agree, so it may be the host's clock that is wrong",
        _ => "",
    };
    let drifts = || of.iter().filter_map(|(_, wall, _)| wall.drift);
    let text = match matter {
        Matter::LongAgo => format!(
            "{names}: the time stamps lie {range} the host's clock: something that was recorded then, or a sender whose \
             clock was never set"
        ),
        Matter::NotInRealTime => {
            let (slowest, fastest) = ends(drifts().map(|drift| drift.ppb));
            let fast = match times(slowest) == times(fastest) {
                true => times(fastest),
                false => format!("{} to {}", times(slowest), times(fastest)),
            };
            format!(
                "{names}: it comes {fast} as fast as its time stamps say: it is not sent in real time"
            )
        }
        Matter::Offset => {
            format!("{names}: the time stamps lie {range} the host's clock{whose}")
        }
        Matter::Drift => {
            let drift = drifts().max_by_key(|drift| drift.ppb.abs());
            let drift = drift.map_or(String::new(), |drift| drift.to_string());
            let whose = match host_synchronised {
                Some(false) => "; the host's own clock is not synchronised",
                _ => "",
            };
            format!("{names}: the rate is {drift} from the nominal one, by the host's clock{whose}")
        }
    };
    Said { calm: matches!(matter, Matter::LongAgo | Matter::NotInRealTime), text }
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

    /// A stream that goes `ppb` too fast and lies so far behind at first; each look comes after `delay`.
    fn watched(seconds: i64, ppb: i64, behind_ns: i64, mut delay: impl FnMut(i64) -> i64) -> Watch {
        let mut watch = Watch::default();
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

    fn standing(watch: &Watch) -> Standing {
        Standing { wall: watch.wall().unwrap(), lately_ns: watch.lately_ns().unwrap() }
    }

    /// Everything that is said of these streams in ten seconds.
    fn told(streams: &[(&str, &Watch)], synchronised: Option<bool>) -> Vec<Said> {
        let mut teller = Teller::new(Limits::default());
        let all: Vec<(&str, Standing)> =
            streams.iter().map(|(name, watch)| (*name, standing(watch))).collect();
        (0..40).flat_map(|_| teller.hear(all.iter().copied(), synchronised)).collect()
    }

    #[test]
    fn a_stream_that_keeps_the_time_is_not_spoken_of() {
        let good = watched(60, 0, 2_000_000, |look| (look * 7919 % 40) * 1_000_000);
        assert_eq!(told(&[("a", &good)], Some(true)), []);
        let wall = good.wall().unwrap();
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
        assert_eq!(short.wall().unwrap().behind_ns, 5 * NS, "but its figure is kept");
        assert_eq!(watched(7, 300_000, 0, |_| 0).wall().unwrap().drift, None);
    }

    #[test]
    fn recordings_of_years_ago_are_told_of_once_and_calmly_however_many_streams() {
        let old = watched(30, 0, 12 * 365 * 86_400 * NS, |look| look % 5 * 1_000_000);
        let names: Vec<String> = (0..16).map(|n| format!("s{n:02}")).collect();
        let streams: Vec<(&str, &Watch)> = names.iter().map(|name| (name.as_str(), &old)).collect();
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
            // The path becomes a little longer all the time, now in steps and now back.
            [0, 40, 10, 70][(look / 100 % 4) as usize] * 1_000_000
        });
        assert_eq!(told(&[("a", &unsure)], None), [], "{:?}", unsure.wall());
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
        let mut teller = Teller::new(Limits::default());
        let said = (0..1000)
            .map(|n| if n / 10 % 2 == 0 { &bad } else { &good })
            .map(|watch| teller.hear([("a", standing(watch))], None).len())
            .sum::<usize>();
        assert_eq!(said, MOST_SAID as usize);
    }

    #[test]
    fn limits_that_are_off_say_nothing() {
        let bad = watched(30, 400_000, NS, |_| 0);
        let mut teller = Teller::new(Limits { offset: None, drift_ppm: None });
        assert!((0..40).all(|_| teller.hear([("a", standing(&bad))], None).is_empty()));
    }

    proptest! {
        /// The environment only delays, and now and then nothing at all comes for a while.
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
                // What was held up comes all at once at the end of the stall.
                let held = stalled * NS / 20 + stall - look * NS / 20;
                if look >= stalled { delay.max(held) } else { delay }
            });
            let wall = watch.wall().unwrap();
            prop_assert!(watch.steps.len() <= MOST_STEPS);
            prop_assert!(wall.least_ns <= wall.behind_ns && wall.behind_ns <= wall.most_ns);
            if let Some(drift) = wall.drift {
                let off = (drift.ppb - ppb).unsigned_abs();
                // What neither the stream nor anybody else can show: delays that happen to lie on a line.
                let alike = 60_000_000 * 1_000 / (seconds as u64 * 1_000 / 1_000);
                prop_assert!(off <= drift.uncertain_ppb + alike, "{drift} for {ppb} ppb");
            }
        }
    }
}
