//! Whether a condition is fulfilled, bin after bin.
//!
//! A duration (`for 10ms`) counts the bins from the first to the latest one at which its part was fulfilled. Bins that
//! were not looked at in between do not end it, unless they are more than a second: it is better to keep an event in vain
//! than to lose it.

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
        Self { root: Node::of(query, bin_s, &mut 0), full_scale, reason: None }
    }

    /// Takes the channels of the next bin. Returns true if the condition is fulfilled there.
    pub fn step(&mut self, bin: u64, lines: &Lines, slack: Slack) -> bool {
        let mut reason = None;
        let scale = self.full_scale;
        let fulfilled = self.root.step(bin, lines, slack, scale, &mut reason);
        self.reason = reason.or(self.reason);
        fulfilled
    }

    /// The latest value that fulfilled a comparison.
    pub fn reason(&self) -> Option<Reason> {
        self.reason
    }
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
                let bins = |seconds: f64| (seconds / bin_s - 1e-6).ceil().max(1.0) as u64;
                let (needed, bridged) = (bins(*seconds), bins(BRIDGED_S));
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
    fn step(
        &mut self,
        bin: u64,
        lines: &Lines,
        slack: Slack,
        scale: f64,
        reason: &mut Option<Reason>,
    ) -> bool {
        match self {
            Node::Or(parts) => parts.iter_mut().fold(false, |all, part| {
                let one = part.step(bin, lines, slack, scale, reason);
                all | one
            }),
            Node::And(parts) => parts.iter_mut().fold(true, |all, part| {
                let one = part.step(bin, lines, slack, scale, reason);
                all & one
            }),
            Node::Not(part) => !part.step(bin, lines, slack.opposite(), scale, &mut None),
            Node::For(part, duration) => {
                let one = part.step(bin, lines, slack, scale, reason);
                duration.step(bin, one)
            }
            Node::Condition { condition, band } => {
                let found = find(condition, *band, lines, slack, scale);
                *reason = found.or(*reason);
                found.is_some()
            }
        }
    }
}

impl Duration {
    fn step(&mut self, bin: u64, fulfilled: bool) -> bool {
        self.run = match self.run {
            _ if !fulfilled => None,
            Some((first, last)) if bin.saturating_sub(last) <= self.bridged => Some((first, bin)),
            _ => Some((bin, bin)),
        };
        self.run.is_some_and(|(first, last)| last - first + 1 >= self.needed)
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

/// The first channel that fulfils a comparison.
fn find(
    condition: &Condition,
    band: usize,
    lines: &Lines,
    slack: Slack,
    scale: f64,
) -> Option<Reason> {
    let first = lines.keys().next().map(|(thread, _)| *thread);
    let is_meant = |thread: u16, channel: usize| match condition.line {
        None => true,
        Some(line) => line.thread.or(first) == Some(thread) && line.channel == channel,
    };
    let number = threshold(condition, slack);
    let decibels = |power: f64| 10.0 * (power / scale).log10();
    lines.iter().filter(|((thread, channel), _)| is_meant(*thread, *channel)).find_map(
        |((thread, channel), values)| {
            let (value, unit) = match condition.quantity {
                Quantity::Power => (decibels(values.power), "dB"),
                Quantity::BandPower(_) => (decibels(*values.bands.get(band)?), "dB"),
                Quantity::Level => (values.level, ""),
                Quantity::Burst | Quantity::Absent => return None,
            };
            let line = LineId { thread: Some(*thread), channel: *channel };
            condition.comparison.holds(value, number).then_some(Reason { line, value, unit })
        },
    )
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
            .map(|(bin, power)| evaluator.step(*bin, &lines(&[1.0, *power]), slack))
            .collect()
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
