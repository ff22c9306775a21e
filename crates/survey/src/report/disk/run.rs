//! The long run: rate over time and position, with stalls, cliffs and temperature.

use maud::{Markup, html};

use super::{line, required, required_mark};
use crate::bench::disk::continuous::cliff;
use crate::bench::result::{BenchResult, Bin, Continuous, Pass, ScanRun};
use crate::report::chart::{self, Axis, Mark, Plot, Point, Quantity, Series, Shape, thinned};
use crate::report::{page, text};

/// The most points, as many as a screen can show.
const MOST_POINTS: usize = 240;

/// The number of marked stalls.
const STALLS_SHOWN: usize = 5;

/// The section on the long run: rate over time and position, with stalls, cliffs and temperature.
pub fn section(result: &BenchResult, run: &Continuous) -> Markup {
    let words = format!(
        "{} written in {} blocks of {}, up to {} in flight on each member{}{}.",
        text::size(run.write.bytes as f64),
        text::count(run.write.bytes.div_ceil(run.block_bytes.max(1))),
        text::block_size(run.block_bytes),
        text::block_size(run.depth_bytes),
        run.paced
            .map_or(String::new(), |rate| format!(", held back to {}", text::rate(rate.0 as f64))),
        run.wrap.map_or(String::new(), |bytes| format!(
            ", going round within {}",
            text::size(bytes.0 as f64)
        )),
    );
    html! {
        section {
            h2 { "The long run" }
            p.lead { (words) " " (cliff_sentence(run)) }
            (time_figure(result, run))
            (position_figure(result, run))
            (cliff_table(run))
            (pass_table(run))
            (scan_table(run))
            (verification(run))
            (throttling(run))
            (members(run))
        }
    }
}

fn cliff_sentence(run: &Continuous) -> String {
    let settled = run.settled.map_or(String::new(), |settled| {
        format!(
            " Sustained, recommended and the rings are those of the {} {}: {} over {}.",
            text::size(settled.bytes as f64),
            if settled.before_cliff {
                "in which the capacity asked for ends"
            } else {
                "after the last cliff"
            },
            text::rate(settled.rate),
            text::seconds(settled.seconds)
        )
    });
    let cliffs: String = match run.cliffs.as_slice() {
        [] if run.write.seconds < cliff::SHORTEST_RUN_S => {
            format!("{} are too short to show a cliff.", text::seconds(run.write.seconds))
        }
        [] => "The rate did not change for good anywhere.".into(),
        [only] => format!(
            "After {} the rate went from {} to {}.",
            text::size(only.position as f64),
            text::rate(only.before),
            text::rate(only.after)
        ),
        several => format!("The rate changed for good at {} places.", several.len()),
    };
    cliffs + &settled
}

fn time_figure(result: &BenchResult, run: &Continuous) -> Markup {
    if run.write.over_time.is_empty() {
        return html! {};
    }
    let end = run.write.over_time.last().map_or(1.0, |bin| bin.at_s + bin.seconds);
    let time = |label: &str| Axis {
        label: label.into(),
        quantity: Quantity::Seconds,
        range: (0.0, end.max(1e-3)),
        logarithmic: false,
    };
    let middle = |bin: &Bin| bin.at_s + bin.seconds / 2.0;
    let rates: Vec<(f64, f64)> =
        run.write.over_time.iter().map(|bin| (middle(bin), bin.rate)).collect();
    let points = thinned(&rates, MOST_POINTS, |x, y, (low, high)| {
        let (x, y) = (text::seconds(x), text::rate(y));
        format!("{x}: {y} ({} to {})", text::rate(low), text::rate(high))
    });
    let mut marks: Vec<Mark> = run
        .cliffs
        .iter()
        .map(|cliff| Mark::Down {
            x: cliff.at_s,
            label: cliff_label(cliff.before, cliff.after),
            tone: chart::WRONG,
        })
        .collect();
    marks.extend(worst_bins(&run.write.over_time).into_iter().map(|bin| Mark::At {
        x: middle(bin),
        note: format!(
            "a block took {} at {}",
            text::milliseconds(bin.slowest_ms),
            text::seconds(middle(bin))
        ),
        tone: chart::WRONG,
    }));
    marks.extend(required_mark(result));
    let tops = points.iter().filter_map(|point| point.spread).map(|spread| spread.1);
    let plot = Plot {
        id: "time".into(),
        title: "Rate against time".into(),
        description: format!(
            "Writing took {} at {} on average; the slowest stretch was at {}, the fastest at {}.",
            text::seconds(run.write.seconds),
            text::rate(run.write.rate),
            text::rate(least(&run.write.over_time)),
            text::rate(most(&run.write.over_time)),
        ),
        height: 270.0,
        x: time(""),
        y: Axis::from_zero("write rate", Quantity::Rate, tops.chain(required(result))),
        series: vec![line("written", chart::WRITE, points)],
        marks,
    };
    let stalls = stall_panel(run, time("time since the writing began"));
    let heat = heat_panel(run, time("time since the writing began"));
    html! {
        figure {
            figcaption {
                "Rate against time"
                span { "Above: the mean of each stretch, its slowest and fastest part as a band; triangles mark the longest block writes. Below: the longest block write in each stretch"
                    @if heat.is_some() { ", and the temperature" } "." }
            }
            (plot.svg())
            (stalls.svg())
            @if let Some(heat) = &heat { (heat.legend()) (heat.svg()) }
        }
    }
}

fn cliff_label(before: f64, after: f64) -> String {
    format!("cliff: {} → {}", text::rate(before), text::rate(after))
}

/// The bins with the longest block writes.
fn worst_bins(bins: &[Bin]) -> Vec<&Bin> {
    let mut worst: Vec<&Bin> = bins.iter().filter(|bin| bin.slowest_ms > 0.0).collect();
    worst.sort_by(|a, b| b.slowest_ms.total_cmp(&a.slowest_ms));
    worst.truncate(STALLS_SHOWN);
    worst
}

fn stall_panel(run: &Continuous, x: Axis) -> Plot {
    let bins = &run.write.over_time;
    let each = bins.len().div_ceil(MOST_POINTS).max(1);
    let point = |run: &[Bin]| {
        let slowest = run.iter().map(|bin| bin.slowest_ms).fold(0.0, f64::max);
        let middle = (run[0].at_s + run[run.len() - 1].at_s + run[run.len() - 1].seconds) / 2.0;
        let note = format!(
            "{}: the longest block write took {}",
            text::seconds(middle),
            text::milliseconds(slowest)
        );
        Point { x: middle, y: slowest * 1e6, spread: None, note }
    };
    let points: Vec<Point> = bins.chunks(each).map(point).collect();
    Plot {
        id: "stalls".into(),
        title: "Longest block write against time".into(),
        description: format!(
            "The longest block write took {}, at {}.",
            text::milliseconds(run.stalls.longest_ms),
            text::seconds(run.stalls.longest_at_s)
        ),
        height: 150.0,
        x,
        y: Axis::from_zero("longest write", Quantity::Nanoseconds, points.iter().map(|p| p.y)),
        series: vec![Series {
            name: "longest block write".into(),
            tone: chart::WRONG,
            shape: Shape::Bars,
            dashed: false,
            points,
        }],
        marks: Vec::new(),
    }
}

/// The plot of temperatures, if there are several readings.
fn heat_panel(run: &Continuous, x: Axis) -> Option<Plot> {
    let told = |sensor: &str, at: f64, heat: f64| {
        format!("{sensor} at {}: {heat:.0} °C", text::seconds(at))
    };
    let series: Vec<Series> = run
        .temperatures
        .iter()
        .filter(|sensor| sensor.readings.len() > 1)
        .take(4)
        .enumerate()
        .map(|(number, sensor)| Series {
            name: sensor.sensor.clone(),
            tone: chart::HEAT + number,
            shape: Shape::Line,
            dashed: false,
            points: thinned(&sensor.readings, MOST_POINTS, |at, heat, _| {
                told(&sensor.sensor, at, heat)
            }),
        })
        .collect();
    if series.is_empty() {
        return None;
    }
    let values = series.iter().flat_map(|series| series.points.iter().map(|point| point.y));
    let limits = run.temperatures.iter().filter_map(|sensor| sensor.limit_c);
    let mut y = Axis::within("", Quantity::Celsius, values.chain(limits.clone()));
    y.range = ((y.range.0 / 10.0).floor() * 10.0, (y.range.1 / 10.0 + 0.3).ceil() * 10.0);
    let hottest =
        series.iter().flat_map(|s| s.points.iter()).map(|point| point.y).fold(f64::MIN, f64::max);
    let lowest_limit = limits.fold(f64::INFINITY, f64::min);
    let mark = lowest_limit.is_finite().then(|| Mark::Across {
        y: lowest_limit,
        label: format!("limit {lowest_limit:.0} °C"),
        tone: chart::WRONG,
    });
    Some(Plot {
        id: "heat".into(),
        title: "Temperature against time".into(),
        description: format!("The hottest reading was {hottest:.0} °C."),
        height: 150.0,
        x,
        y: Axis { label: "temperature".into(), ..y },
        series,
        marks: mark.into_iter().collect(),
    })
}

fn position_figure(result: &BenchResult, run: &Continuous) -> Markup {
    let series: Vec<Series> = [
        ("written", chart::WRITE, Some(&run.write)),
        ("read back", chart::READ, run.read.as_ref()),
    ]
    .into_iter()
    .filter_map(|(name, tone, pass)| Some((name, tone, pass?)))
    .filter(|(_, _, pass)| pass.over_position.len() > 1)
    .map(|(name, tone, pass)| line(name, tone, by_position(name, pass)))
    .collect();
    if series.is_empty() {
        return html! {};
    }
    let tops =
        series.iter().flat_map(|s| s.points.iter()).filter_map(|point| point.spread).map(|s| s.1);
    let mut marks: Vec<Mark> = run
        .cliffs
        .iter()
        .map(|cliff| Mark::Down {
            x: cliff.position as f64,
            label: cliff_label(cliff.before, cliff.after),
            tone: chart::WRONG,
        })
        .collect();
    marks.extend(required_mark(result));
    let plot = Plot {
        id: "position".into(),
        title: "Rate against position".into(),
        description: format!(
            "From the first byte to {}: the write rate lies between {} and {}.",
            text::size(run.write.bytes as f64),
            text::rate(least(&run.write.over_position)),
            text::rate(most(&run.write.over_position))
        ),
        height: 250.0,
        x: Axis {
            label: "position, from the first byte".into(),
            quantity: Quantity::Size,
            range: (0.0, (run.write.bytes as f64).max(1.0)),
            logarithmic: false,
        },
        y: Axis::from_zero("rate", Quantity::Rate, tops.chain(required(result))),
        series,
        marks,
    };
    html! {
        figure {
            figcaption { "Rate against position" }
            (plot.legend())
            (plot.svg())
        }
    }
}

fn by_position(name: &str, pass: &Pass) -> Vec<Point> {
    let middle = |bin: &Bin| bin.position as f64 + bin.bytes as f64 / 2.0;
    let rates: Vec<(f64, f64)> =
        pass.over_position.iter().map(|bin| (middle(bin), bin.rate)).collect();
    thinned(&rates, MOST_POINTS, |x, y, (low, high)| {
        format!(
            "{name} at {}: {} ({} to {})",
            text::size(x),
            text::rate(y),
            text::rate(low),
            text::rate(high)
        )
    })
}

fn cliff_table(run: &Continuous) -> Markup {
    let rows: Vec<Vec<String>> = run
        .cliffs
        .iter()
        .map(|cliff| {
            vec![
                text::size(cliff.position as f64),
                text::seconds(cliff.at_s),
                text::rate(cliff.before),
                text::rate(cliff.after),
                cliff.likely.clone(),
            ]
        })
        .collect();
    page::table_with_words(
        "Cliffs",
        &["after", "at", "before", "from there on", "coincides with"],
        &rows,
    )
}

fn pass_table(run: &Continuous) -> Markup {
    let row = |name: &str, pass: &Pass| {
        vec![
            name.to_owned(),
            text::size(pass.bytes as f64),
            text::seconds(pass.seconds),
            text::rate(pass.rate),
            text::rate(least(&pass.over_position)),
            text::rate(most(&pass.over_position)),
            format!("{:.3}", pass.cpu_s_per_gb),
        ]
    };
    let mut rows = vec![row("write", &run.write)];
    rows.extend(run.read.as_ref().map(|read| row("read", read)));
    let heads =
        ["pass", "bytes", "time", "mean rate", "slowest stretch", "fastest stretch", "CPU s/GB"];
    page::table("", &heads, &rows)
}

/// The table of the scans of a duty cycle.
fn scan_table(run: &Continuous) -> Markup {
    let Some(duty) = &run.duty else { return html! {} };
    let row = |(number, scan): (usize, &ScanRun)| {
        vec![
            (number + 1).to_string(),
            text::size(scan.bytes as f64),
            text::rate(scan.rate),
            text::size(scan.pause_bytes as f64),
            text::seconds(scan.drained_s),
        ]
    };
    let rows: Vec<Vec<String>> = duty.scans.iter().enumerate().map(row).collect();
    let title = format!("Scans of {} s, with pauses of {} s", duty.record_s, duty.pause_s);
    let heads = ["scan", "written", "rate", "written in the pause", "for so long"];
    page::table(&title, &heads, &rows)
}

fn verification(run: &Continuous) -> Markup {
    html! {
        @if let Some(check) = &run.verification {
            p {
                @if check.wrong_blocks == 0 {
                    "Read back and compared with the pattern " code { (run.pattern) } ": "
                    (text::size(check.compared_bytes as f64)) ", every byte as written."
                } @else {
                    b { (text::count(check.wrong_blocks)) " blocks differ from what was written" }
                    " (of " (text::size(check.compared_bytes as f64)) " compared)."
                    @if let Some(first) = &check.first { " The first: " (first) "." }
                }
            }
        }
    }
}

fn throttling(run: &Continuous) -> Markup {
    let rows: Vec<Vec<String>> = run
        .throttling
        .iter()
        .map(|it| vec![it.counter.clone(), text::count(it.before), text::count(it.after)])
        .collect();
    page::table("Counters of throttling", &["counter", "before", "after"], &rows)
}

fn members(run: &Continuous) -> Markup {
    let rows: Vec<Vec<String>> = run
        .members
        .iter()
        .map(|member| {
            vec![
                member.path.clone(),
                text::size(member.bytes as f64),
                text::rate(member.rate),
                text::milliseconds(member.longest_ms),
            ]
        })
        .collect();
    page::table("What each member took", &["member", "bytes", "rate", "longest block write"], &rows)
}

fn least(bins: &[Bin]) -> f64 {
    bins.iter().map(|bin| bin.rate).fold(f64::INFINITY, f64::min)
}

fn most(bins: &[Bin]) -> f64 {
    bins.iter().map(|bin| bin.rate).fold(0.0, f64::max)
}
