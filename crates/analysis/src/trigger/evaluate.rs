//! Whether a condition is fulfilled, bin after bin.
//!
//! A duration (`for 10ms`) counts the bins from the first to the latest one at which its part was fulfilled. Bins that
//! were not looked at in between do not end it, unless they are more than a second: it is better to keep an event in vain
//! than to lose it.
//!
//! A bin may lack a channel (frames of its thread are lost) or a band (no transform is complete). Whether a condition on
//! it is fulfilled there is not known, and neither it nor its opposite is. Kleene's logic joins such conditions.

use std::collections::BTreeMap;

use crate::content::query::{Band, Comparison, Condition, Quantity, Query};
use crate::plan::LineId;

use super::meter::LineValues;

/// The time without samples over which a duration continues, in seconds.
const BRIDGED_S: f64 = 1.0;

/// The hysteresis of powers in dB.
const POWER_SLACK_DB: f64 = 1.0;
/// The hysteresis of levels as a part of the threshold.
const LEVEL_SLACK: f64 = 0.1;

/// The hysteresis that is in effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slack {
    /// The condition is as it is written.
    None,
    /// It is easier to fulfil: a trigger lasts.
    Relaxed,
    /// It is harder to fulfil, since a relaxed condition is the opposite of it.
    Strict,
}

/// The channels of one bin, by thread and channel.
pub type Lines = BTreeMap<(u16, usize), LineValues>;

/// A condition over bins in a row.
#[derive(Clone, Debug)]
pub struct Evaluator {
    root: Node,
    full_scale: f64,
    /// Bins over which a duration continues, and for which a channel is expected.
    bridged: u64,
    /// The latest bin of each channel.
    seen: BTreeMap<(u16, usize), u64>,
    /// The channel and the value with which the condition was fulfilled last.
    reason: Option<Reason>,
}

/// The value that fulfilled a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reason {
    /// The channel.
    pub line: LineId,
    /// The value, in the unit of the comparison.
    pub value: f64,
    /// The unit: `dB`, or none for levels.
    pub unit: &'static str,
}

#[derive(Clone, Debug)]
enum Node {
    Or(Vec<Node>),
    And(Vec<Node>),
    Not(Box<Node>),
    For(Box<Node>, Duration),
    Condition { condition: Condition, band: usize },
}

/// The state of a duration.
#[derive(Clone, Copy, Debug)]
struct Duration {
    /// Bins that it needs.
    needed: u64,
    /// Bins without samples that do not end it.
    bridged: u64,
    /// The first and the latest bin of the run.
    run: Option<(u64, u64)>,
}

/// The bands of a query, in the order in which their power is expected.
pub fn bands(query: &Query) -> Vec<Band> {
    let mut bands = Vec::new();
    visit(query, &mut |part| {
        if let Query::Condition(Condition { quantity: Quantity::BandPower(band), .. }) = part {
            bands.push(*band);
        }
    });
    bands
}

/// The shortest duration of a query, in seconds.
pub fn shortest(query: &Query) -> Option<f64> {
    let mut shortest: Option<f64> = None;
    visit(query, &mut |part| {
        if let Query::For(_, seconds) = part {
            shortest = Some(shortest.map_or(*seconds, |it| it.min(*seconds)));
        }
    });
    shortest
}

/// The longest time from the begin of an event to the moment at which its duration is fulfilled, in seconds.
pub fn longest_delay(query: &Query) -> f64 {
    match query {
        Query::Or(parts) | Query::And(parts) => parts.iter().map(longest_delay).fold(0.0, f64::max),
        Query::Not(part) => longest_delay(part),
        Query::For(part, seconds) => longest_delay(part) + seconds,
        Query::Condition(_) => 0.0,
    }
}

/// The largest channel that a query names.
pub fn largest_channel(query: &Query) -> Option<usize> {
    let mut largest: Option<usize> = None;
    visit(query, &mut |part| {
        if let Query::Condition(Condition { line: Some(line), .. }) = part {
            largest = largest.max(Some(line.channel));
        }
    });
    largest
}

fn visit(query: &Query, see: &mut dyn FnMut(&Query)) {
    see(query);
    match query {
        Query::Or(parts) | Query::And(parts) => parts.iter().for_each(|part| visit(part, see)),
        Query::Not(part) | Query::For(part, _) => visit(part, see),
        Query::Condition(_) => {}
    }
}

impl Evaluator {
    /// An evaluator of a query over bins of this length. `full_scale` is the power of 0 dB.
    pub fn new(query: &Query, bin_s: f64, full_scale: f64) -> Self {
        let (root, bridged) = (Node::of(query, bin_s, &mut 0), bins_of(BRIDGED_S, bin_s));
        Self { root, full_scale, bridged, seen: BTreeMap::new(), reason: None }
    }

    /// Takes the channels of the next bin. Returns whether the condition is fulfilled there; `None` if that is not known.
    pub fn step(&mut self, bin: u64, lines: &Lines, slack: Slack) -> Option<bool> {
        self.seen.extend(lines.keys().map(|line| (*line, bin)));
        let oldest = bin.saturating_sub(self.bridged);
        let expected = self.seen.iter().filter(|(_, seen)| **seen >= oldest).map(|(line, _)| *line);
        let bin = Bin {
            number: bin,
            lines,
            expected: expected.collect(),
            first: self.seen.keys().next().map(|(thread, _)| *thread),
            scale: self.full_scale,
        };
        let mut reason = None;
        let fulfilled = self.root.step(&bin, slack, &mut reason);
        self.reason = reason.or(self.reason);
        fulfilled
    }

    /// The latest value that fulfilled a comparison.
    pub fn reason(&self) -> Option<Reason> {
        self.reason
    }
}

/// The number of bins of a time.
fn bins_of(seconds: f64, bin_s: f64) -> u64 {
    (seconds / bin_s - 1e-6).ceil().max(1.0) as u64
}

/// A bin, and what belongs in it.
struct Bin<'a> {
    number: u64,
    lines: &'a Lines,
    /// Channels that came in it, or within the second before it.
    expected: Vec<(u16, usize)>,
    /// The first thread of the stream.
    first: Option<u16>,
    /// The power of 0 dB.
    scale: f64,
}

impl Node {
    fn of(query: &Query, bin_s: f64, bands: &mut usize) -> Self {
        let mut all = |parts: &[Query]| -> Vec<Node> {
            parts.iter().map(|part| Node::of(part, bin_s, bands)).collect()
        };
        match query {
            Query::Or(parts) => Node::Or(all(parts)),
            Query::And(parts) => Node::And(all(parts)),
            Query::Not(part) => Node::Not(Box::new(Node::of(part, bin_s, bands))),
            Query::For(part, seconds) => {
                let (needed, bridged) = (bins_of(*seconds, bin_s), bins_of(BRIDGED_S, bin_s));
                let duration = Duration { needed, bridged, run: None };
                Node::For(Box::new(Node::of(part, bin_s, bands)), duration)
            }
            Query::Condition(condition) => {
                let band = *bands;
                *bands += usize::from(matches!(condition.quantity, Quantity::BandPower(_)));
                Node::Condition { condition: *condition, band }
            }
        }
    }

    /// Steps every part, whatever the result of the others: a duration counts all bins.
    fn step(&mut self, bin: &Bin<'_>, slack: Slack, reason: &mut Option<Reason>) -> Option<bool> {
        let mut joined = |parts: &mut [Node], decisive: bool| {
            let mut all = Some(!decisive);
            for part in parts {
                let one = part.step(bin, slack, reason);
                all = match one == Some(decisive) || all == Some(decisive) {
                    true => Some(decisive),
                    false => all.and(one),
                };
            }
            all
        };
        match self {
            Node::Or(parts) => joined(parts, true),
            Node::And(parts) => joined(parts, false),
            Node::Not(part) => part.step(bin, slack.opposite(), &mut None).map(|it| !it),
            Node::For(part, duration) => {
                let one = part.step(bin, slack, reason);
                duration.step(bin.number, one)
            }
            Node::Condition { condition, band } => {
                let (fulfilled, found) = bin.compare(condition, *band, slack);
                *reason = found.or(*reason);
                fulfilled
            }
        }
    }
}

impl Duration {
    /// A bin in which it is not known whether the part is fulfilled does not change the run.
    fn step(&mut self, bin: u64, fulfilled: Option<bool>) -> Option<bool> {
        let run = self.run.filter(|(_, last)| bin.saturating_sub(*last) <= self.bridged);
        let is_long = |first: u64| bin - first + 1 >= self.needed;
        match fulfilled {
            Some(false) => self.run = None,
            Some(true) => self.run = Some((run.map_or(bin, |(first, _)| first), bin)),
            // It cannot be long enough, or it may be.
            None => return (!is_long(run.map_or(bin, |(first, _)| first))).then_some(false),
        }
        Some(self.run.is_some_and(|(first, _)| is_long(first)))
    }
}

impl Slack {
    fn opposite(self) -> Self {
        match self {
            Slack::None => Slack::None,
            Slack::Relaxed => Slack::Strict,
            Slack::Strict => Slack::Relaxed,
        }
    }
}

impl Bin<'_> {
    /// Whether a channel fulfils a comparison, and the first one that does.
    fn compare(
        &self,
        condition: &Condition,
        band: usize,
        slack: Slack,
    ) -> (Option<bool>, Option<Reason>) {
        let is_meant = |(thread, channel): &(u16, usize)| match condition.line {
            None => true,
            Some(line) => line.thread.or(self.first) == Some(*thread) && line.channel == *channel,
        };
        let number = threshold(condition, slack);
        // A channel that was never seen is not known either.
        let mut known = self.expected.iter().any(is_meant).then_some(false);
        for key @ (thread, channel) in self.expected.iter().filter(|it| is_meant(it)) {
            let values = self.lines.get(key);
            let Some((value, unit)) = values.and_then(|it| self.value(condition, band, it)) else {
                known = None;
                continue;
            };
            if condition.comparison.holds(value, number) {
                let line = LineId { thread: Some(*thread), channel: *channel };
                return (Some(true), Some(Reason { line, value, unit }));
            }
        }
        (known, None)
    }

    /// The value of a quantity, with its unit. `None` if no transform of a band is complete.
    fn value(
        &self,
        condition: &Condition,
        band: usize,
        values: &LineValues,
    ) -> Option<(f64, &'static str)> {
        let decibels = |power: f64| 10.0 * (power / self.scale).log10();
        match condition.quantity {
            Quantity::Power => Some((decibels(values.power), "dB")),
            Quantity::BandPower(_) => Some((decibels(*values.bands.get(band)?), "dB")),
            Quantity::Level => Some((values.level, "")),
            Quantity::Burst | Quantity::Absent => None,
        }
    }
}

/// The number of a comparison with the hysteresis.
fn threshold(condition: &Condition, slack: Slack) -> f64 {
    let width = match condition.quantity {
        Quantity::Level => condition.number.abs() * LEVEL_SLACK,
        _ => POWER_SLACK_DB,
    };
    let lower = match condition.comparison {
        Comparison::Above | Comparison::AtLeast => 1.0,
        Comparison::Below | Comparison::AtMost => -1.0,
    };
    match slack {
        Slack::None => condition.number,
        Slack::Relaxed => condition.number - lower * width,
        Slack::Strict => condition.number + lower * width,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(powers: &[f64]) -> Lines {
        let values = |power: &f64| LineValues {
            power: *power,
            level: power.sqrt(),
            bands: vec![power / 10.0, power / 100.0],
        };
        powers.iter().enumerate().map(|(channel, it)| ((0, channel), values(it))).collect()
    }

    fn run(text: &str, bins: &[(u64, f64)], slack: Slack) -> Vec<bool> {
        let query = Query::of_samples(text).unwrap();
        let mut evaluator = Evaluator::new(&query, 0.001, 100.0);
        bins.iter()
            .map(|(bin, power)| evaluator.step(*bin, &lines(&[1.0, *power]), slack) == Some(true))
            .collect()
    }

    /// The results of bins whose channels have these powers, if they came.
    fn incomplete(text: &str, bins: &[[Option<f64>; 2]]) -> Vec<Option<bool>> {
        let query = Query::of_samples(text).unwrap();
        let mut evaluator = Evaluator::new(&query, 0.001, 100.0);
        let step = |(bin, powers): (u64, &[Option<f64>; 2])| {
            let all = lines(&powers.map(Option::unwrap_or_default));
            let came = all.into_iter().filter(|((_, channel), _)| powers[*channel].is_some());
            evaluator.step(bin, &came.collect(), Slack::None)
        };
        (0..).zip(bins).map(step).collect()
    }

    #[test]
    fn comparisons_are_those_of_their_channel_and_band() {
        // Channel 1 has 0 dB and the level 10; its bands have -10 and -20 dB.
        for (text, fulfilled) in [
            ("power(ch1) > -0.1 dB", true),
            ("power(ch0) > -0.1 dB", false),
            ("power(any) >= 0 dB and power(ch0) < -19", true),
            ("level(ch0:1) >= 10", true),
            ("level(ch1:1) >= 10", false),
            ("power(ch1, 1..2) > -11 and power(ch1, 2..3) > -11", false),
            ("power(ch1, 1..2) > -11 and power(ch1, 2..3) > -21", true),
            ("not level(any) > 100", true),
        ] {
            assert_eq!(run(text, &[(0, 100.0)], Slack::None), [fulfilled], "{text}");
        }
        let query = Query::of_samples("level(ch1) > 3 or power(ch0) > 0").unwrap();
        let mut evaluator = Evaluator::new(&query, 0.001, 100.0);
        evaluator.step(0, &lines(&[1.0, 100.0]), Slack::None);
        let line = LineId { thread: Some(0), channel: 1 };
        assert_eq!(evaluator.reason(), Some(Reason { line, value: 10.0, unit: "" }));
    }

    #[test]
    fn hysteresis_lowers_a_threshold_and_raises_it_behind_not() {
        let bins = [(0, 90.0), (1, 70.0)];
        for (text, as_written, relaxed) in [
            ("power(ch1) > 0 dB", [false, false], [true, false]),
            ("level(ch1) > 10", [false, false], [true, false]),
            ("power(ch1) < -2 dB", [false, false], [false, true]),
            ("not power(ch1) < -1 dB", [true, false], [true, true]),
        ] {
            assert_eq!(run(text, &bins, Slack::None), as_written, "{text}");
            assert_eq!(run(text, &bins, Slack::Relaxed), relaxed, "{text}");
        }
    }

    #[test]
    fn a_duration_continues_over_bins_that_were_not_looked_at_for_a_second() {
        let query = "power(ch1) > 0 dB for 10 ms";
        let loud = |bins: &[u64]| bins.iter().map(|bin| (*bin, 200.0)).collect::<Vec<_>>();
        assert_eq!(run(query, &loud(&[5, 13, 14]), Slack::None), [false, false, true]);
        assert_eq!(run(query, &loud(&[5, 2000, 2009]), Slack::None), [false, false, true]);
        let quiet = [(5, 200.0), (6, 1.0), (14, 200.0)];
        assert_eq!(run(query, &quiet, Slack::None), [false, false, false]);
    }

    #[test]
    fn what_a_bin_lacks_is_not_known_and_does_not_end_a_duration() {
        let (quiet, loud) = (Some(1.0), Some(200.0));
        let told = |text: &str, bins: &[[Option<f64>; 2]]| incomplete(text, bins);
        let lost = [[quiet, loud], [quiet, None], [quiet, loud], [quiet, quiet]];
        let [yes, no] = [true, false].map(Some);
        assert_eq!(told("power(ch1) > 0", &lost), [yes, None, yes, no]);
        assert_eq!(told("not power(ch1) > 0", &lost), [no, None, no, yes]);
        for text in
            ["power(ch1) > 0 for 3ms", "power(any) > 0 for 3ms", "power(ch1, 1..2) > -11 for 3ms"]
        {
            assert_eq!(told(text, &lost), [no, no, yes, no], "{text}");
        }
        assert_eq!(told("not power(any) > 0", &lost), [no, None, no, yes]);
        assert_eq!(told("power(ch1) > 0 or power(ch0) < 0", &lost[1..2]), [yes]);
        assert_eq!(told("power(ch1) > 0 and power(ch0) > 0", &lost[1..2]), [no]);
        assert_eq!(told("power(ch1) > 0 for 2ms", &lost[..2]), [no, None]);
        // A channel that is away for more than a second is not waited for.
        let mut away = vec![[quiet, quiet]];
        away.resize(1002, [quiet, None]);
        let told = told("power(any) > 0", &away);
        assert_eq!((told[1], told[1000], told[1001]), (None, None, no));
    }

    #[test]
    fn a_band_without_a_transform_is_not_known() {
        let query = Query::of_samples("power(ch0, 1..2) > 0 for 2ms").unwrap();
        let mut evaluator = Evaluator::new(&query, 0.001, 100.0);
        let mut step = |bin, bands: &[f64]| {
            let values = LineValues { power: 1.0, level: 1.0, bands: bands.to_vec() };
            evaluator.step(bin, &[((0, 0), values)].into(), Slack::None)
        };
        let told =
            [(0, &[500.0][..]), (1, &[]), (2, &[500.0])].map(|(bin, bands)| step(bin, bands));
        assert_eq!(told, [Some(false), None, Some(true)]);
    }

    #[test]
    fn the_delay_of_a_query_is_that_of_its_durations() {
        let of = |text: &str| longest_delay(&Query::of_samples(text).unwrap());
        assert_eq!(of("level(any) > 1"), 0.0);
        assert_eq!(of("level(any) > 1 for 2s or not (level(ch0) > 1 for 3s)"), 3.0);
        assert_eq!(of("(level(any) > 1 for 2s and level(ch0) > 2) for 3s"), 5.0);
    }

    proptest! {
        /// A run of bins has a bin with `for` exactly if it is as long as that, from there to its end.
        #[test]
        fn a_duration_is_fulfilled_from_its_length_on(
            bins in prop::collection::vec(any::<bool>(), 0..100),
            length in 1usize..12,
        ) {
            let numbered: Vec<(u64, f64)> =
                (0u64..).zip(&bins).map(|(bin, loud)| (bin, if *loud { 200.0 } else { 1.0 })).collect();
            let told = run(&format!("power(ch1) > 0 for {length} ms"), &numbered, Slack::None);
            let wanted: Vec<bool> = (0..bins.len())
                .map(|at| at + 1 >= length && bins[at + 1 - length..=at].iter().all(|loud| *loud))
                .collect();
            prop_assert_eq!(told, wanted);
        }
    }
}
