//! The durations of block writes, and the worst stretches of the run.

use maud::{Markup, html};

use super::{line, required, required_mark};
use crate::bench::result::{BenchResult, Continuous, Stalls};
use crate::report::chart::{self, Axis, Mark, Plot, Point, Quantity, Series, Shape};
use crate::report::{page, text};

/// The shortest run that is extrapolated to an hour.
const SHORTEST_FOR_AN_HOUR_S: f64 = 360.0;

/// The section on durations of block writes, for a run of `seconds`.
pub fn section(stalls: &Stalls, seconds: f64) -> Markup {
    if stalls.writes == 0 {
        return html! {};
    }
    let rows: Vec<Vec<String>> = stalls
        .percentiles
        .iter()
        .map(|it| vec![format!("{} %", it.percent), text::milliseconds(it.ms)])
        .chain([vec!["longest".into(), text::milliseconds(stalls.longest_ms)]])
        .collect();
    let long_enough = seconds >= SHORTEST_FOR_AN_HOUR_S;
    let often: Vec<Vec<String>> = stalls
        .per_hour
        .iter()
        .map(|it| {
            let per_hour = match it.per_hour {
                many if many >= 100.0 => text::count(many.round() as u64),
                few => format!("{few:.1}"),
            };
            let mut row =
                vec![format!("over {}", text::milliseconds(it.over_ms)), text::count(it.seen)];
            row.extend(long_enough.then_some(per_hour));
            row
        })
        .collect();
    let heads = ["block write", "seen", "per hour"];
    let heads = if long_enough { &heads[..] } else { &heads[..2] };
    html! {
        section {
            h2 { "How long a block took" }
            p.lead {
                "From submission to completion, " (text::count(stalls.writes)) " block writes. The longest took "
                (text::milliseconds(stalls.longest_ms)) ", " (text::seconds(stalls.longest_at_s))
                " after the beginning; the longest time in which none was completed was "
                (text::milliseconds(stalls.longest_silence_ms)) "."
            }
            (histogram(stalls))
            (percentile_figure(stalls))
            div.pair {
                (page::table("Percentiles", &["share of the writes", "within"], &rows))
                (page::table("How often", heads, &often))
            }
        }
    }
}

/// The histogram of block writes by duration. Both axes are logarithmic, because the far end matters.
fn histogram(stalls: &Stalls) -> Markup {
    let filled: Vec<_> = stalls.histogram.iter().filter(|bucket| bucket.writes > 0).collect();
    if filled.len() < 2 {
        return html! {};
    }
    let middle = |from: f64, to: f64| (from.max(1e-6) * to.max(1e-6)).sqrt() * 1e6;
    let points: Vec<Point> = filled
        .iter()
        .map(|bucket| Point {
            x: middle(bucket.from_ms, bucket.to_ms),
            y: bucket.writes as f64,
            spread: None,
            note: format!(
                "{} to {}: {} writes",
                text::milliseconds(bucket.from_ms),
                text::milliseconds(bucket.to_ms),
                text::count(bucket.writes)
            ),
        })
        .collect();
    let x = Axis::logarithmic(
        "time of a block write",
        Quantity::Nanoseconds,
        points.iter().map(|p| p.x),
    );
    let mut y = Axis::logarithmic("writes", Quantity::Count, points.iter().map(|p| p.y));
    // A bar of a single write must be visible.
    y.range.0 = 0.6;
    let x = Axis { range: (x.range.0 * 0.85, x.range.1 * 1.18), ..x };
    let plot = Plot {
        id: "histogram".into(),
        title: "Distribution of block write times".into(),
        description: format!(
            "{} writes in {} ranges; the longest took {}.",
            text::count(stalls.writes),
            filled.len(),
            text::milliseconds(stalls.longest_ms)
        ),
        height: 230.0,
        x,
        y,
        series: vec![Series {
            name: "writes".into(),
            tone: chart::WRITE,
            shape: Shape::Bars,
            dashed: false,
            points,
        }],
        marks: Vec::new(),
    };
    page::figure(
        "Distribution of block write times",
        "Both axes by equal factors: the few writes at the right are those that decide.",
        &plot.svg(),
    )
}

/// The duration by share of writes, with as much width for the last thousandth as for the first half.
fn percentile_figure(stalls: &Stalls) -> Markup {
    let nines = |percent: f64| -(1.0 - percent / 100.0).max(1e-9).log10();
    let mut points: Vec<Point> = stalls
        .percentiles
        .iter()
        .filter(|it| it.percent < 100.0)
        .map(|it| Point {
            x: nines(it.percent),
            y: it.ms * 1e6,
            spread: None,
            note: format!("{} % within {}", it.percent, text::milliseconds(it.ms)),
        })
        .collect();
    if points.len() < 3 {
        return html! {};
    }
    // The longest of n writes has a share of 1 − 1/n.
    let last = (stalls.writes.max(2) as f64).log10();
    if points.last().is_some_and(|point| point.x < last) {
        points.push(Point {
            x: last,
            y: stalls.longest_ms * 1e6,
            spread: None,
            note: format!(
                "the longest of {}: {}",
                text::count(stalls.writes),
                text::milliseconds(stalls.longest_ms)
            ),
        });
    }
    let plot = Plot {
        id: "percentiles".into(),
        title: "Percentiles of block write times".into(),
        description: "Time within which a share of the writes was done.".into(),
        height: 210.0,
        x: Axis::from_zero("share of the writes", Quantity::Nines, points.iter().map(|p| p.x)),
        y: Axis::from_zero("within", Quantity::Nanoseconds, points.iter().map(|p| p.y)),
        series: vec![line("within", chart::WRITE, points)],
        marks: Vec::new(),
    };
    page::figure(
        "Percentiles of block write times",
        "Each step to the right is ten times rarer.",
        &plot.svg(),
    )
}

/// The worst rate in any window.
pub fn windows(result: &BenchResult, run: &Continuous) -> Markup {
    if run.worst_windows.len() < 2 {
        return html! {};
    }
    let points: Vec<Point> = run
        .worst_windows
        .iter()
        .map(|window| Point {
            x: window.seconds,
            y: window.rate,
            spread: None,
            note: format!("worst {}: {}", text::seconds(window.seconds), text::rate(window.rate)),
        })
        .collect();
    let rows: Vec<Vec<String>> = run
        .worst_windows
        .iter()
        .map(|window| {
            vec![text::seconds(window.seconds), text::rate(window.rate), text::seconds(window.at_s)]
        })
        .collect();
    let rates = points.iter().map(|p| p.y).chain(required(result)).chain([run.write.rate]);
    let mut marks = vec![Mark::Across {
        y: run.write.rate,
        label: format!("mean: {}", text::rate(run.write.rate)),
        tone: chart::WRITE,
    }];
    marks.extend(required_mark(result));
    let plot = Plot {
        id: "windows".into(),
        title: "Worst rate in any window".into(),
        description: "The slowest stretch of each length.".into(),
        height: 210.0,
        x: Axis::logarithmic("length of the window", Quantity::Seconds, points.iter().map(|p| p.x)),
        y: Axis::from_zero("worst rate", Quantity::Rate, rates),
        series: vec![line("worst rate", chart::WRITE, points)],
        marks,
    };
    html! {
        section {
            h2 { "The worst stretch of each length" }
            p.lead { "Where the curve lies below the rate asked for, the ring has to carry the difference for so long." }
            (page::figure("Worst rate in any window", "", &plot.svg()))
            (page::table("", &["window", "worst rate", "at"], &rows))
        }
    }
}
