//! Compares two results, and separates changes from noise.
//!
//! Every figure that both results contain is compared. If both were measured several times, Welch's test on mean,
//! deviation and number of runs decides whether the means differ (at 95 %). A long run counts as ten stretches. If the
//! spread of one is not known, the figure is shown and not judged. A figure is *worse* if the difference is above both
//! noise and the threshold. Extreme values, such as the longest of many writes, are shown and not judged.

use std::cmp::Ordering;
use std::fmt;

use serde::Serialize;

use super::result::{BenchResult, Bin, Curve, Direction, Mode, Pass, Spread, SweepPoint};

/// All differences.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Identities of the two results, the earlier first.
    pub results: [uuid::Uuid; 2],
    /// The start times.
    pub started: [String; 2],
    /// The share by which a figure may be worse without being judged as worse.
    pub threshold: f64,
    /// Differences in machine and settings.
    pub circumstances: Vec<Circumstance>,
    /// The figures, in the order of the document.
    pub figures: Vec<Figure>,
    /// The number of figures in only one of the results.
    pub unmatched: usize,
    /// True if any figure is worse.
    pub worse: bool,
}

/// A difference other than a figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Circumstance {
    /// The name.
    pub name: String,
    /// The values in both results.
    pub values: [String; 2],
    /// True if the difference makes figures hardly comparable.
    pub weighty: bool,
}

/// One figure of both results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The name.
    pub name: String,
    /// The unit.
    pub unit: Unit,
    /// The values in both results.
    pub values: [Spread; 2],
    /// The share by which the second value is larger than the first.
    pub change: f64,
    /// The difference that noise alone causes in one of twenty cases, as a share; `None` if unknown.
    pub noise: Option<f64>,
    /// The judgement.
    pub judgement: Judgement,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Bytes per second: higher is better.
    BytesPerSecond,
    /// CPU seconds per 10⁹ bytes: lower is better.
    CpuPerGb,
    /// Milliseconds: lower is better.
    Milliseconds,
}

/// The judgement of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// Worse, above noise and threshold.
    Worse,
    /// Better, above both.
    Better,
    /// Above noise, within the threshold.
    Slight,
    /// Within noise.
    Same,
    /// Beyond the threshold, but the run-to-run variation is unknown.
    NotJudged,
    /// An extreme value: shown only.
    Shown,
}

impl Comparison {
    /// The number of figures with this judgement.
    pub fn count(&self, judgement: Judgement) -> usize {
        self.figures.iter().filter(|figure| figure.judgement == judgement).count()
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Worse => "WORSE",
            Self::Better => "better",
            Self::Slight => "slight",
            Self::Same => "same",
            Self::NotJudged => "not judged",
            Self::Shown => "",
        })
    }
}

impl Unit {
    /// True if a larger value is better.
    fn more_is_better(self) -> bool {
        self == Self::BytesPerSecond
    }
}

/// A figure of one result.
struct Measured {
    name: String,
    unit: Unit,
    spread: Spread,
    by_chance: bool,
}

/// Compares an earlier result with a later one.
pub fn compare(earlier: &BenchResult, later: &BenchResult, threshold: f64) -> Comparison {
    let (before, after) = (figures_of(earlier), figures_of(later));
    let mut figures = Vec::new();
    let mut unmatched = after.len();
    for one in &before {
        match after.iter().find(|it| it.name == one.name && it.unit == one.unit) {
            Some(other) => {
                unmatched -= 1;
                figures.push(figure(one, other, threshold));
            }
            None => unmatched += 1,
        }
    }
    Comparison {
        results: [earlier.id, later.id],
        started: [earlier.started.clone(), later.started.clone()],
        threshold,
        circumstances: circumstances(earlier, later),
        worse: figures.iter().any(|figure| figure.judgement == Judgement::Worse),
        figures,
        unmatched,
    }
}

fn figure(one: &Measured, other: &Measured, threshold: f64) -> Figure {
    let (a, b) = (one.spread, other.spread);
    let change = if a.mean.abs() > 0.0 { (b.mean - a.mean) / a.mean } else { 0.0 };
    let noise = noise(&a, &b).map(|noise| if a.mean.abs() > 0.0 { noise / a.mean } else { 0.0 });
    let judgement = if one.by_chance {
        Judgement::Shown
    } else if change == 0.0 || noise.is_some_and(|noise| change.abs() <= noise) {
        Judgement::Same
    } else if change.abs() <= threshold {
        if noise.is_some() { Judgement::Slight } else { Judgement::Same }
    } else if noise.is_none() {
        Judgement::NotJudged
    } else if (change > 0.0) == one.unit.more_is_better() {
        Judgement::Better
    } else {
        Judgement::Worse
    };
    Figure { name: one.name.clone(), unit: one.unit, values: [a, b], change, noise, judgement }
}

/// The difference of two means that chance alone reaches in one of twenty cases (Welch). `None` if a spread is not
/// known.
fn noise(a: &Spread, b: &Spread) -> Option<f64> {
    if a.runs < 2 || b.runs < 2 {
        return None;
    }
    let share = |s: &Spread| s.deviation * s.deviation / f64::from(s.runs);
    let (va, vb) = (share(a), share(b));
    if va + vb == 0.0 {
        return Some(0.0);
    }
    let freedom =
        (va + vb).powi(2) / (va * va / f64::from(a.runs - 1) + vb * vb / f64::from(b.runs - 1));
    Some(student(freedom) * (va + vb).sqrt())
}

/// The 97.5 % quantile of Student's distribution; degrees of freedom are rounded down.
fn student(freedom: f64) -> f64 {
    const TABLE: [(f64, f64); 14] = [
        (1.0, 12.71),
        (2.0, 4.30),
        (3.0, 3.18),
        (4.0, 2.78),
        (5.0, 2.57),
        (6.0, 2.45),
        (7.0, 2.36),
        (8.0, 2.31),
        (9.0, 2.26),
        (10.0, 2.23),
        (15.0, 2.13),
        (20.0, 2.09),
        (30.0, 2.04),
        (60.0, 2.00),
    ];
    let known = TABLE.iter().rev().find(|(degrees, _)| *degrees <= freedom + 1e-9);
    match known {
        Some((degrees, _)) if *degrees >= 60.0 && freedom >= 120.0 => 1.96,
        Some((_, quantile)) => *quantile,
        None => TABLE[0].1,
    }
}

/// The number of stretches of a long run in a comparison. A long run lasts at least `SHORTEST_LONG_RUN_S`.
const STRETCHES: usize = 10;
const SHORTEST_LONG_RUN_S: f64 = 10.0;

/// A value that was measured once.
fn once(value: f64) -> Spread {
    Spread::of(&[value])
}

/// The rate of a long run, with the spread of its stretches. A short run is a single measurement.
fn stretches(pass: &Pass) -> Spread {
    let bins = &pass.over_time;
    let each = bins.len() / STRETCHES;
    if pass.seconds < SHORTEST_LONG_RUN_S || each == 0 {
        return once(pass.rate);
    }
    let rate = |bins: &[Bin]| {
        let bytes: u64 = bins.iter().map(|bin| bin.bytes).sum();
        bytes as f64 / bins.iter().map(|bin| bin.seconds).sum::<f64>().max(1e-9)
    };
    let rates: Vec<f64> = bins.chunks_exact(each).map(rate).collect();
    Spread { mean: pass.rate, ..Spread::of(&rates) }
}

/// All comparable figures of a result, each with its own name.
fn figures_of(result: &BenchResult) -> Vec<Measured> {
    let mut figures: Vec<Measured> = Vec::new();
    let mut put = |name: String, unit: Unit, spread: Spread, by_chance: bool| {
        let known = figures.iter().any(|it| it.name == name && it.unit == unit);
        if spread.mean > 0.0 && !known {
            figures.push(Measured { name, unit, spread, by_chance });
        }
    };
    for stage in &result.stages {
        let name = match stage.threads {
            0 | 1 => stage.name.clone(),
            many => format!("{}, {many} threads", stage.name),
        };
        put(name.clone(), Unit::BytesPerSecond, stage.rate, false);
        if let Some(cost) = stage.cpu_s_per_gb {
            put(name, Unit::CpuPerGb, once(cost), true);
        }
    }
    if let Some(run) = &result.continuous {
        let recommended = &run.recommended;
        let write = stretches(&run.write);
        let sustained = recommended.sustained.0 as f64;
        // The rate derives from the same trace and has the same relative deviation.
        let deviation = write.deviation / write.mean.max(1.0) * sustained;
        let sustained = Spread { runs: write.runs, deviation, ..once(sustained) };
        put("sustained".into(), Unit::BytesPerSecond, sustained, false);
        put("continuous write".into(), Unit::BytesPerSecond, write, false);
        put("continuous write".into(), Unit::CpuPerGb, once(run.write.cpu_s_per_gb), true);
        if let Some(read) = &run.read {
            put("continuous read".into(), Unit::BytesPerSecond, stretches(read), false);
            put("continuous read".into(), Unit::CpuPerGb, once(read.cpu_s_per_gb), true);
        }
        for window in &run.worst_windows {
            let name = format!("worst {} s", window.seconds);
            put(name, Unit::BytesPerSecond, once(window.rate), window.seconds < 1.0);
        }
        for it in &run.stalls.percentiles {
            let name = format!("block write, {} %", it.percent);
            put(name, Unit::Milliseconds, once(it.ms), it.percent > 99.0);
        }
        put("longest block write".into(), Unit::Milliseconds, once(run.stalls.longest_ms), true);
    }
    for point in &result.sweep {
        put(point_name(point), Unit::BytesPerSecond, point.rate, false);
    }
    figures
}

fn point_name(point: &SweepPoint) -> String {
    let direction = match point.direction {
        Direction::Write => "write",
        Direction::Read => "read",
    };
    let mode = match point.mode {
        Mode::Direct => "direct",
        Mode::Buffered => "buffered",
        Mode::Uncached => "uncached",
    };
    let files = match point.curves.contains(&Curve::Files) {
        true => format!(", {} files", point.files),
        false => String::new(),
    };
    format!(
        "{direction} {mode}, session {}, block {}, depth {}{files}",
        crate::report::block_size(point.session_bytes),
        crate::report::block_size(point.block_bytes),
        point.depth
    )
}

/// The differences other than figures.
fn circumstances(a: &BenchResult, b: &BenchResult) -> Vec<Circumstance> {
    let mut found = Vec::new();
    let mut differ = |name: &str, one: String, other: String, weighty: bool| {
        if one != other {
            found.push(Circumstance { name: name.into(), values: [one, other], weighty });
        }
    };
    let (x, y) = (&a.environment, &b.environment);
    differ("benchmark", format!("{:?}", a.kind), format!("{:?}", b.kind), true);
    differ("host", x.host.clone(), y.host.clone(), true);
    differ("processor", x.cpu.clone(), y.cpu.clone(), true);
    differ("processors", x.cpus.to_string(), y.cpus.to_string(), true);
    differ("memory", x.memory.to_string(), y.memory.to_string(), false);
    differ("kernel", x.kernel.clone(), y.kernel.clone(), false);
    differ("program", x.program.clone(), y.program.clone(), false);
    differ("optimised", x.optimised.to_string(), y.optimised.to_string(), true);
    let pages = |pages: &Option<String>| pages.clone().unwrap_or("not known".into());
    differ("huge pages", pages(&x.huge_pages), pages(&y.huge_pages), false);
    let targets = |result: &BenchResult| {
        let paths = result.targets.iter().map(|target| target.path.clone());
        paths.collect::<Vec<_>>().join(", ")
    };
    differ("targets", targets(a), targets(b), true);
    let systems = |result: &BenchResult| {
        let each =
            result.targets.iter().map(|target| target.file_system.clone().unwrap_or_default());
        each.collect::<Vec<_>>().join(", ")
    };
    differ("file systems", systems(a), systems(b), true);
    let long = |result: &BenchResult| {
        result.continuous.as_ref().map_or(String::new(), |run| {
            let paced = run.paced.map_or(String::new(), |rate| format!(", paced at {rate}"));
            let duty = run.duty.as_ref().map_or(String::new(), |duty| {
                format!(", scans and pauses of {} s / {} s", duty.record_s, duty.pause_s)
            });
            let wrap = if run.wrap.is_some() { ", going round" } else { "" };
            format!(
                "blocks of {}, {} in flight, {}{paced}{duty}{wrap}",
                crate::report::block_size(run.block_bytes),
                crate::report::block_size(run.depth_bytes),
                run.pattern
            )
        })
    };
    differ("long run", long(a), long(b), true);
    let bytes =
        |result: &BenchResult| result.continuous.as_ref().map_or(0.0, |run| run.write.bytes as f64);
    let (less, more) = (bytes(a).min(bytes(b)), bytes(a).max(bytes(b)));
    if more > 1.2 * less {
        // A drive that is filled further passes more cliffs.
        let told = |result| crate::report::size(bytes(result));
        differ("written in the long run", told(a), told(b), true);
    }
    differ("interrupted", a.interrupted.to_string(), b.interrupted.to_string(), true);
    found
}

/// The latest result that has a predecessor of its kind and target, and that predecessor; the earlier first.
pub fn last_two(results: &[BenchResult]) -> Option<(&BenchResult, &BenchResult)> {
    let mut latest: Vec<&BenchResult> = results.iter().filter(|it| !it.interrupted).collect();
    latest.sort_by(|a, b| by_time(b, a));
    latest.into_iter().find_map(|this| Some((before(results, this)?, this)))
}

/// The latest complete result before this one of its kind and target.
pub fn before<'a>(results: &'a [BenchResult], this: &BenchResult) -> Option<&'a BenchResult> {
    let alike = |it: &&BenchResult| {
        !it.interrupted
            && it.id != this.id
            && it.kind == this.kind
            && paths(it) == paths(this)
            && it.started <= this.started
    };
    results.iter().filter(alike).max_by(by_time)
}

fn by_time(a: &&BenchResult, b: &&BenchResult) -> Ordering {
    (&a.started, a.id).cmp(&(&b.started, b.id))
}

fn paths(result: &BenchResult) -> Vec<&str> {
    result.targets.iter().map(|target| target.path.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::result::{DutyRun, Environment, Kind, Stage};

    fn result(rates: &[f64]) -> BenchResult {
        let mut result = BenchResult::new(Kind::Memory, Environment::default());
        result.stages = vec![Stage {
            name: "copy".into(),
            what: "copied".into(),
            rate: Spread::of(rates),
            cpu_s_per_gb: Some(0.1),
            threads: 1,
            figures: Default::default(),
        }];
        result
    }

    fn judged(before: &[f64], after: &[f64]) -> Judgement {
        compare(&result(before), &result(after), 0.05).figures[0].judgement
    }

    #[test]
    fn a_difference_within_the_spread_is_the_same() {
        // 20 % less, but each run varies by as much.
        assert_eq!(judged(&[8e9, 10e9, 12e9], &[6e9, 8e9, 10e9]), Judgement::Same);
        assert_eq!(judged(&[10e9, 10.1e9, 9.9e9], &[8e9, 8.1e9, 7.9e9]), Judgement::Worse);
        assert_eq!(judged(&[8e9, 8.1e9, 7.9e9], &[10e9, 10.1e9, 9.9e9]), Judgement::Better);
    }

    #[test]
    fn a_true_difference_within_the_threshold_is_slight() {
        assert_eq!(judged(&[10e9, 10.01e9, 9.99e9], &[9.8e9, 9.81e9, 9.79e9]), Judgement::Slight);
    }

    #[test]
    fn a_single_run_beyond_the_threshold_is_not_judged() {
        assert_eq!(judged(&[10e9], &[9.6e9]), Judgement::Same);
        assert_eq!(judged(&[10e9], &[9e9, 9e9, 9e9]), Judgement::NotJudged);
        assert!(!compare(&result(&[10e9]), &result(&[5e9]), 0.05).worse);
    }

    #[test]
    fn a_long_run_is_judged_by_its_stretches_and_a_quick_one_is_not() {
        let drive: BenchResult =
            serde_json::from_str(include_str!("../../tests/data/drive.json")).unwrap();
        let slower = |seconds: f64, factor: f64| {
            let mut result = drive.clone();
            let run = result.continuous.as_mut().unwrap();
            run.write.seconds = seconds;
            run.write.rate = 1e9 * factor;
            for (n, bin) in run.write.over_time.iter_mut().enumerate() {
                (bin.seconds, bin.rate) = (1.0, 1e9 * factor + 1e6 * (n % 3) as f64);
                bin.bytes = bin.rate as u64;
            }
            result
        };
        let of = |seconds| {
            let comparison = compare(&slower(seconds, 1.0), &slower(seconds, 0.8), 0.05);
            let is_write =
                |it: &&Figure| it.name == "continuous write" && it.unit == Unit::BytesPerSecond;
            comparison.figures.iter().find(is_write).unwrap().judgement
        };
        assert_eq!(of(600.0), Judgement::Worse);
        assert_eq!(of(3.0), Judgement::NotJudged);
    }

    #[test]
    fn another_machine_is_said() {
        let (a, mut b) = (result(&[1e9]), result(&[1e9]));
        assert_eq!(compare(&a, &b, 0.05).circumstances, []);
        b.environment.cpu = "another".into();
        let found = compare(&a, &b, 0.05).circumstances;
        assert!(found.len() == 1 && found[0].weighty && found[0].name == "processor", "{found:?}");
    }

    #[test]
    fn another_duty_cycle_is_said() {
        let drive: BenchResult =
            serde_json::from_str(include_str!("../../tests/data/drive.json")).unwrap();
        let mut other = drive.clone();
        let duty = DutyRun { record_s: 40.0, pause_s: 20.0, ..DutyRun::default() };
        other.continuous.as_mut().unwrap().duty = Some(duty);
        let found = compare(&drive, &other, 0.05).circumstances;
        assert!(found.len() == 1 && found[0].values[1].ends_with("40 s / 20 s"), "{found:?}");
    }

    #[test]
    fn figures_that_only_one_has_are_counted() {
        let (a, mut b) = (result(&[1e9]), result(&[1e9]));
        b.stages[0].name = "crc32c".into();
        let comparison = compare(&a, &b, 0.05);
        assert_eq!((comparison.figures.len(), comparison.unmatched), (0, 4));
        assert!(!comparison.worse);
    }

    #[test]
    fn the_last_two_of_one_target_are_found() {
        let mut results: Vec<BenchResult> = (0..4).map(|_| result(&[1e9])).collect();
        for (n, it) in results.iter_mut().enumerate() {
            it.started = format!("2026-11-22T0{n}:00:00Z");
        }
        results[2].kind = Kind::Ring;
        let (before, latest) = last_two(&results).unwrap();
        assert_eq!((before.id, latest.id), (results[1].id, results[3].id));
        assert_eq!(super::before(&results, &results[1]).unwrap().id, results[0].id);
        assert_eq!(super::before(&results, &results[2]), None);
        assert_eq!(last_two(&results[..1]), None);
        results[3].interrupted = true;
        let (before, latest) = last_two(&results).unwrap();
        assert_eq!((before.id, latest.id), (results[0].id, results[1].id), "ended too early");
        results[3].interrupted = false;
        results[1].interrupted = true;
        let (before, latest) = last_two(&results).unwrap();
        assert_eq!((before.id, latest.id), (results[0].id, results[3].id), "ended too early");
        results[1].interrupted = false;
        results[3].targets = vec![Default::default()];
        let (before, latest) = last_two(&results).unwrap();
        assert_eq!((before.id, latest.id), (results[0].id, results[1].id), "of one that has two");
    }
}
