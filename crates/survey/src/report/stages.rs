//! Stages of the path side by side, which shows the slowest.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use maud::{Markup, html};

use super::chart::{self, Bar, Bars, Quantity};
use super::page::{self, Tile};
use super::text;
use crate::bench::result::{BenchResult, Kind, Stage};

/// The name of the stage for the whole path.
pub const WHOLE: &str = "path";

/// The largest ratio of bar lengths: a longer bar would make the others invisible.
const BEYOND: f64 = 60.0;

/// The slowest stage of the path, except the whole path itself.
pub fn slowest(stages: &[Stage]) -> Option<&Stage> {
    let by_rate =
        |a: &&Stage, b: &&Stage| a.rate.mean.partial_cmp(&b.rate.mean).unwrap_or(Ordering::Equal);
    stages.iter().filter(|stage| stage.name != WHOLE && stage.rate.mean > 0.0).min_by(by_rate)
}

/// The least share of its slowest stage's rate at which a path counts as limited by that stage.
const LIMITED_BY_A_STAGE: f64 = 0.9;

/// A sentence that names the stage that limits the path.
pub fn limit(stages: &[Stage]) -> Option<String> {
    let stage = slowest(stages)?;
    let (rate, what) = (text::rate(stage.rate.mean), &stage.what);
    let whole = stages.iter().find(|stage| stage.name == WHOLE && stage.rate.mean > 0.0);
    Some(match whole {
        Some(whole) if whole.rate.mean < stage.rate.mean * LIMITED_BY_A_STAGE => format!(
            "No stage alone limits the path: the path whole reached {}, and the slowest stage alone, {}, {rate}. The \
             stages share the processors, or the sender was too slow: see the notes.",
            text::rate(whole.rate.mean),
            stage.name
        ),
        _ => format!("The slowest stage is {}: {rate} ({what}).", stage.name),
    })
}

/// The key figures of a benchmark of stages.
pub fn tiles(result: &BenchResult) -> Markup {
    let mut tiles: Vec<Tile> = Vec::new();
    if let Some(whole) = result.stages.iter().find(|stage| stage.name == WHOLE) {
        tiles.push(Tile {
            name: "The path whole",
            figure: text::rate(whole.rate.mean),
            small: cost(whole).unwrap_or_default(),
        });
    }
    if let Some(stage) = slowest(&result.stages) {
        tiles.push(Tile {
            name: if result.kind == Kind::All { "Slowest stage" } else { "Slowest" },
            figure: text::rate(stage.rate.mean),
            small: format!("{}: {}", stage.name, stage.what),
        });
    }
    let dearest = result.stages.iter().filter(|stage| stage.name != WHOLE);
    let by_cost = |a: &&Stage, b: &&Stage| {
        a.cpu_s_per_gb.partial_cmp(&b.cpu_s_per_gb).unwrap_or(Ordering::Equal)
    };
    if let Some(stage) = dearest.max_by(by_cost).filter(|stage| stage.cpu_s_per_gb.is_some()) {
        tiles.push(Tile {
            name: "Most CPU time",
            figure: cost(stage).unwrap_or_default(),
            small: format!("{}: {}", stage.name, stage.what),
        });
    }
    page::tiles(&tiles)
}

fn cost(stage: &Stage) -> Option<String> {
    stage.cpu_s_per_gb.map(|cost| format!("{cost:.3} CPU s/GB"))
}

/// The section with bars of all stages, and the numbers.
pub fn section(result: &BenchResult) -> Markup {
    if result.stages.is_empty() {
        return html! {};
    }
    let several = threads_differ(&result.stages);
    let bar = |stage: &Stage| Bar {
        name: called(stage, several),
        value: stage.rate.mean,
        spread: (stage.rate.runs > 1).then_some((stage.rate.least, stage.rate.most)),
        tone: if stage.name == WHOLE { chart::OTHER } else { chart::WRITE },
    };
    let line = result.verdict.as_ref().map(|verdict| {
        let required = verdict.required.0 as f64;
        (required, format!("asked for: {}", text::requested(verdict)))
    });
    let floor = slowest(&result.stages).map_or(0.0, |stage| stage.rate.mean);
    let beyond = |stage: &&Stage| floor > 0.0 && stage.rate.mean > BEYOND * floor;
    let (off, drawn): (Vec<&Stage>, Vec<&Stage>) = result.stages.iter().partition(beyond);
    let rows: Vec<Bar> = drawn.into_iter().map(bar).collect();
    let told: Vec<String> =
        rows.iter().map(|row| format!("{}: {}", row.name, text::rate(row.value))).collect();
    let bars = Bars {
        id: "stages".into(),
        title: "Rate of each stage".into(),
        description: told.join("; "),
        quantity: Quantity::Rate,
        rows,
        line,
    };
    let seen = match limit(&result.stages).filter(|_| result.kind == Kind::All) {
        Some(sentence) => sentence,
        None => "Bars are means, whiskers the slowest and the fastest run.".into(),
    };
    let seen = off.iter().fold(seen, |seen, stage| {
        let rate = text::rate(stage.rate.mean);
        format!("{seen} Far off the scale: {}, {rate}.", called(stage, several))
    });
    html! {
        section {
            h2 { (if result.kind == Kind::All { "Each stage alone, and the path whole" } else { "Rates" }) }
            (page::figure("Rate of each stage", &seen, &bars.svg()))
            (numbers(&result.stages, several))
            (figures(&result.stages, several))
        }
    }
}

fn threads_differ(stages: &[Stage]) -> bool {
    stages.iter().any(|stage| stage.threads > 1)
}

/// The name of a stage, with its number of threads if it differs.
pub fn called(stage: &Stage, threads: bool) -> String {
    match (threads, stage.threads) {
        (false, _) | (true, 0) => stage.name.clone(),
        (true, 1) => format!("{}, 1 thread", stage.name),
        (true, many) => format!("{}, {many} threads", stage.name),
    }
}

fn numbers(stages: &[Stage], several: bool) -> Markup {
    let row = |stage: &Stage| {
        vec![
            called(stage, several),
            text::spread(&stage.rate),
            text::rate(stage.rate.least),
            text::rate(stage.rate.most),
            stage.rate.runs.to_string(),
            stage.cpu_s_per_gb.map_or("–".into(), |cost| format!("{cost:.3}")),
        ]
    };
    let heads = ["stage", "rate", "slowest run", "fastest run", "runs", "CPU s/GB"];
    let rows: Vec<Vec<String>> = stages.iter().map(row).collect();
    html! {
        (page::table("", &heads, &rows))
        table.facts {
            tbody {
                @for stage in stages {
                    tr { th scope="row" { (called(stage, several)) } td { (stage.what) } }
                }
            }
        }
    }
}

/// The other figures: a row for each figure, a column for each stage that has any.
fn figures(stages: &[Stage], several: bool) -> Markup {
    let with: Vec<&Stage> = stages.iter().filter(|stage| !stage.figures.is_empty()).collect();
    let names: BTreeSet<&String> = with.iter().flat_map(|stage| stage.figures.keys()).collect();
    let of = |stage: &Stage, name: &String| {
        stage.figures.get(name).map_or("–".into(), |value| figure(name, *value))
    };
    let row = |name: &String| {
        let cells = with.iter().map(|stage| of(stage, name));
        [spoken(name)].into_iter().chain(cells).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = names.into_iter().map(row).collect();
    let heads: Vec<String> = with.iter().map(|stage| called(stage, several)).collect();
    let heads: Vec<&str> = [""].into_iter().chain(heads.iter().map(String::as_str)).collect();
    page::table("Other figures", &heads, &rows)
}

/// The name of a figure without its unit.
pub fn spoken(name: &str) -> String {
    let units = ["_bytes_per_s", "_per_s", "_ns", "_ms", "_s", "_bytes"];
    let bare = units.iter().find_map(|unit| name.strip_suffix(unit)).unwrap_or(name);
    bare.replace('_', " ")
}

/// A figure with the unit at the end of its name.
pub fn figure(name: &str, value: f64) -> String {
    match name {
        name if name.ends_with("_bytes_per_s") => text::rate(value),
        name if name.ends_with("_per_s") => format!("{} /s", text::count(value.round() as u64)),
        name if name.ends_with("_ns") => text::nanoseconds(value),
        name if name.ends_with("_ms") => text::milliseconds(value),
        name if name.ends_with("_bytes") => text::block_size(value as u64),
        name if name.ends_with("_s") => text::seconds(value),
        _ if value.fract() == 0.0 => text::count(value as u64),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_told_in_the_unit_that_its_name_ends_in() {
        assert_eq!(
            (spoken("packets_per_s"), figure("packets_per_s", 31_999.6)),
            ("packets".into(), "32\u{202f}000 /s".into())
        );
        assert_eq!(
            (spoken("handover_p99_ns"), figure("handover_p99_ns", 1900.0)),
            ("handover p99".into(), "1.90 µs".into())
        );
        assert_eq!(
            (spoken("lost_packets"), figure("lost_packets", 7.0)),
            ("lost packets".into(), "7".into())
        );
        assert_eq!(figure("block_bytes", 4_194_304.0), "4 MiB");
    }
}
