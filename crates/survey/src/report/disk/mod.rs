//! Results of a disk benchmark: peak, continuous, stalls, and the ring that they need.

mod ring;
mod run;
mod stalls;
mod sweep;

use maud::{Markup, html};

use super::chart::{self, Bar, Bars, Mark, Point, Quantity, Series, Shape};
use super::page::{self, Tile};
use super::text;
use crate::bench::result::{BenchResult, Direction, SweepPoint};

/// The shortest continuous run that reveals a cache.
const SHORTEST_LONG_RUN_S: f64 = 30.0;

/// The key figures.
pub fn tiles(result: &BenchResult) -> Markup {
    let mut tiles: Vec<Tile> = Vec::new();
    if let Some(run) = &result.continuous {
        let recommended = &run.recommended;
        tiles.push(Tile {
            name: "Sustained",
            figure: text::rate(recommended.sustained.0 as f64),
            small: format!("with a ring of {}, in this run", text::size(recommended.ring.0 as f64)),
        });
        tiles.push(Tile {
            name: "Recommended",
            figure: text::rate(recommended.rate.0 as f64),
            small: "with a margin, which is said below".into(),
        });
        tiles.push(Tile {
            name: "Continuous write",
            figure: text::rate(run.write.rate),
            small: format!(
                "{} in {}",
                text::size(run.write.bytes as f64),
                text::seconds(run.write.seconds)
            ),
        });
    }
    if let Some(best) = peak(result, Direction::Write) {
        tiles.push(Tile {
            name: "Peak write",
            figure: text::rate(best.rate.mean),
            small: format!("{}, {} in flight", text::block_size(best.block_bytes), best.depth),
        });
    }
    if let Some(run) = &result.continuous {
        tiles.push(Tile {
            name: "Longest block write",
            figure: text::milliseconds(run.stalls.longest_ms),
            small: format!("of {} writes", text::count(run.stalls.writes)),
        });
    }
    html! {
        (page::tiles(&tiles))
        @if let Some(run) = &result.continuous {
            p.lead { "Recommended: " (run.recommended.margin) "." }
        }
    }
}

/// The fastest point of the sweep, by its mean.
pub fn peak(result: &BenchResult, direction: Direction) -> Option<&SweepPoint> {
    let points = result.sweep.iter().filter(|point| point.direction == direction);
    points.max_by(|a, b| a.rate.mean.total_cmp(&b.rate.mean))
}

/// All sections that have measurements.
pub fn sections(result: &BenchResult) -> Markup {
    html! {
        (beside(result))
        @if let Some(run) = &result.continuous {
            (run::section(result, run))
            (ring::section(result, run))
            (stalls::section(&run.stalls, run.write.seconds))
            (stalls::windows(result, run))
        }
        (sweep::section(result))
        (comparison_section(result))
        (life_section(result))
    }
}

/// Peak and continuous rates side by side.
fn beside(result: &BenchResult) -> Markup {
    let mut rows: Vec<Bar> = Vec::new();
    let mut row = |name: &str, value: f64, tone: chart::Tone| {
        if value > 0.0 {
            rows.push(Bar { name: name.to_owned(), value, spread: None, tone });
        }
    };
    if let Some(spec) = &result.spec {
        row("data sheet, write", spec.rate.0 as f64, chart::OTHER + 2);
    }
    if let Some(spec) = &result.spec_read {
        row("data sheet, read", spec.rate.0 as f64, chart::OTHER + 2);
    }
    if let Some(run) = &result.continuous {
        row("continuous write", run.write.rate, chart::WRITE);
        let second = run.worst_windows.iter().find(|window| window.seconds >= 1.0);
        if let Some(window) = second {
            let name = format!("worst {} of it", text::seconds(window.seconds));
            row(&name, window.rate, chart::WRITE);
        }
        row("sustained with the ring", run.recommended.sustained.0 as f64, chart::WRITE);
        row("recommended", run.recommended.rate.0 as f64, chart::WRITE);
        row("continuous read", run.read.as_ref().map_or(0.0, |read| read.rate), chart::READ);
    }
    let fastest = result.comparisons.iter().filter(|it| it.direction == Direction::Write);
    let fastest = fastest.filter_map(|it| Some((it.rate?, &it.program)));
    if let Some((rate, program)) = fastest.max_by(|a, b| a.0.total_cmp(&b.0)) {
        row(&format!("{program}, write"), rate, chart::OTHER + 2);
    }
    let of_sweep = |(direction, name): (Direction, &str)| {
        peak(result, direction).map(|point| Bar {
            name: name.into(),
            value: point.rate.mean,
            spread: (point.rate.runs > 1).then_some((point.rate.least, point.rate.most)),
            tone: if direction == Direction::Write { chart::WRITE } else { chart::READ },
        })
    };
    let directions = [(Direction::Write, "peak write"), (Direction::Read, "peak read")];
    let mut all: Vec<Bar> = directions.into_iter().filter_map(of_sweep).collect();
    all.extend(rows);
    if all.len() < 2 {
        return html! {};
    }
    let whiskers = match all.iter().any(|bar| bar.spread.is_some()) {
        true => "Whiskers are the slowest and the fastest run of the sweep.",
        false => "",
    };
    let told: Vec<String> =
        all.iter().map(|bar| format!("{}: {}", bar.name, text::rate(bar.value))).collect();
    let bars = Bars {
        id: "beside".into(),
        title: "Peak beside continuous".into(),
        description: told.join("; "),
        quantity: Quantity::Rate,
        rows: all,
        line: required(result).zip(requested(result)),
    };
    html! {
        section {
            h2 { "Peak beside continuous" }
            p.lead { (peak_sentence(result)) }
            (page::figure("Rates side by side", whiskers, &bars.svg()))
        }
    }
}

fn peak_sentence(result: &BenchResult) -> String {
    let best = |direction| peak(result, direction).map(|point| point.rate.mean);
    let run = result.continuous.as_ref();
    let seconds = run.map_or(0.0, |run| run.write.seconds);
    let read = run.and_then(|run| run.read.as_ref()).map(|read| read.rate);
    let reading = match best(Direction::Read).zip(read) {
        Some((best, mean)) if mean > 0.0 && best / mean >= 1.1 => {
            format!(" Reading, it is {:.1} times.", best / mean)
        }
        _ => String::new(),
    };
    let writing = match (best(Direction::Write), run.map(|run| run.write.rate)) {
        (Some(best), Some(mean)) if mean > 0.0 && best.is_finite() => {
            let times = best / mean;
            match times {
                times if times >= 1.1 => format!(
                    "The best short run is {times:.1} times the continuous rate. Plan with the continuous one."
                ),
                times if times >= 1.0 / 1.1 && seconds < SHORTEST_LONG_RUN_S => format!(
                    "Short runs and this one agree, but {} are too short to show a cache: write for longer.",
                    text::seconds(seconds)
                ),
                times if times >= 1.0 / 1.1 => {
                    "Short and long runs agree: no cache made a difference in writing.".into()
                }
                times => format!(
                    "The best short run is only {:.0} % of the continuous rate: the short runs were too few, too \
                     short or disturbed. The peak says nothing here; plan with the continuous rate.",
                    times * 100.0
                ),
            }
        }
        _ => "A recording lives on the continuous rate, not on the peak.".into(),
    };
    writing + &reading
}

fn required(result: &BenchResult) -> Option<f64> {
    result.verdict.as_ref().map(|verdict| verdict.required.0 as f64)
}

/// The label at the line of the required rate.
fn requested(result: &BenchResult) -> Option<String> {
    result.verdict.as_ref().map(|verdict| format!("asked for: {}", text::requested(verdict)))
}

/// The required rate as a horizontal line.
fn required_mark(result: &BenchResult) -> Option<Mark> {
    let rate = required(result)?;
    Some(Mark::Across { y: rate, label: requested(result)?, tone: chart::WANTED })
}

/// A series of this colour with lines.
fn line(name: &str, tone: chart::Tone, points: Vec<Point>) -> Series {
    Series { name: name.into(), tone, shape: Shape::Line, dashed: false, points }
}

/// `write` or `read`.
pub fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::Write => "write",
        Direction::Read => "read",
    }
}

/// The comparison with other programs.
fn comparison_section(result: &BenchResult) -> Markup {
    if result.comparisons.is_empty() {
        return html! {};
    }
    let number = |value: Option<f64>| value.map_or("–".into(), |value| format!("{value:.3}"));
    let rows: Vec<Vec<String>> = result
        .comparisons
        .iter()
        .map(|it| {
            vec![
                format!(
                    "{} {}, {} × {}{}",
                    it.program,
                    way(it.direction),
                    text::block_size(it.block_bytes),
                    it.depth,
                    if it.huge_pages { ", huge pages" } else { "" }
                ),
                it.rate.map_or_else(|| it.skipped.clone().unwrap_or("not run".into()), text::rate),
                text::rate(it.ours),
                it.ratio.map_or("–".into(), |ratio| format!("{ratio:.2}")),
                number(it.cpu_s_per_gb),
                number(Some(it.ours_cpu_s_per_gb)),
            ]
        })
        .collect();
    let heads =
        ["the same job", "theirs", "ours", "ours over theirs", "their CPU s/GB", "our CPU s/GB"];
    html! {
        section {
            h2 { "Beside other programs" }
            (page::table("", &heads, &rows))
        }
    }
}

/// The comparison with the data sheet, and the lifetime of the drive.
fn life_section(result: &BenchResult) -> Markup {
    if result.spec.is_none() && result.spec_read.is_none() && result.endurance.is_none() {
        return html! {};
    }
    let (spec, life) = (result.spec.as_ref(), result.endurance.as_ref());
    let reading = result.spec_read.as_ref();
    let of_spec =
        |share: Option<f64>| share.map(|share| format!("{} of the data sheet", text::share(share)));
    html! {
        section {
            h2 { "Data sheet and endurance" }
            (page::facts(&[
                ("Data sheet, write", spec.map(|it| text::rate(it.rate.0 as f64))),
                ("Peak write", spec.and_then(|it| of_spec(it.peak_ratio))),
                ("Continuous write", spec.and_then(|it| of_spec(it.continuous_ratio))),
                ("fio, write", spec.and_then(|it| of_spec(it.system_ratio))),
                ("Data sheet, read", reading.map(|it| text::rate(it.rate.0 as f64))),
                ("Peak read", reading.and_then(|it| of_spec(it.peak_ratio))),
                ("Continuous read", reading.and_then(|it| of_spec(it.continuous_ratio))),
                ("fio, read", reading.and_then(|it| of_spec(it.system_ratio))),
                ("Reckoned with", life.map(|it| text::rate(it.rate.0 as f64))),
                ("Recording", life.and_then(|it| it.recording_share).map(|share| format!("{} of the time", text::share(share)))),
                ("Written in a day", life.map(|it| format!("{:.1} TB", it.tb_per_day))),
                ("Warranted", life.and_then(|it| it.tbw).map(|tbw| format!("{tbw:.0} TB written"))),
                ("Lasts, day and night", life.and_then(|it| it.days).map(|days| format!("{days:.0} days"))),
                ("Drive writes per day", life.and_then(|it| it.drive_writes_per_day).map(|n| format!("{n:.1}"))),
            ]))
        }
    }
}
