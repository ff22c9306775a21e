//! Peak rates by size, depth and mode.

use maud::{Markup, html};

use super::way;
use crate::bench::result::{BenchResult, Curve, Direction, Mode, Modifier, SweepPoint};
use crate::report::chart::{self, Axis, Bar, Bars, Plot, Point, Quantity, Series, Shape};
use crate::report::{page, text};

/// The section on peak rates.
pub fn section(result: &BenchResult) -> Markup {
    if result.sweep.is_empty() {
        return html! {};
    }
    let session = |point: &SweepPoint| point.session_bytes as f64;
    let block = |point: &SweepPoint| point.block_bytes as f64;
    let depth = |point: &SweepPoint| f64::from(point.depth);
    let files = |point: &SweepPoint| f64::from(point.files);
    html! {
        section {
            h2 { "Peak rates" }
            p.lead { (runs_sentence(result)) }
            (sweep_figure(result, Curve::Session, "Rate against the size of a session", "session", Quantity::BlockSize, session))
            (sweep_figure(result, Curve::Block, "Rate against the size of a block", "block", Quantity::BlockSize, block))
            (sweep_figure(result, Curve::Depth, "Rate against requests in flight", "requests in flight", Quantity::Doubling, depth))
            (sweep_figure(result, Curve::Files, "Rate against the number of files", "files", Quantity::Doubling, files))
            (modes(result))
            (modify_table(result))
            (sweep_table(result))
            (iteration_table(result))
        }
    }
}

fn runs_sentence(result: &BenchResult) -> &'static str {
    match result.sweep.iter().any(|point| point.rate.runs > 1) {
        true => "Means of several short runs; whiskers are one standard deviation.",
        false => {
            "One short run of each point: how far two runs differ is not known. Give --runs for that."
        }
    }
}

fn sweep_figure(
    result: &BenchResult,
    curve: Curve,
    title: &str,
    label: &str,
    quantity: Quantity,
    place: impl Fn(&SweepPoint) -> f64,
) -> Markup {
    let of_curve: Vec<&SweepPoint> =
        result.sweep.iter().filter(|point| point.curves.contains(&curve)).collect();
    let (mut series, mut odd_series): (Vec<Series>, Vec<Series>) = Default::default();
    for (direction, mode) in ways(&of_curve) {
        let mut points: Vec<&SweepPoint> = of_curve
            .iter()
            .copied()
            .filter(|point| (point.direction, point.mode) == (direction, mode))
            .collect();
        points.sort_by(|a, b| place(a).total_cmp(&place(b)));
        // A line through blocks that end within a sector would hide the others.
        let (odd, whole): (Vec<&SweepPoint>, Vec<&SweepPoint>) =
            points.into_iter().partition(|point| point.read_modify_write.is_some());
        let drawn = |points: Vec<&SweepPoint>| -> Vec<Point> {
            points.into_iter().map(|point| sweep_point(point, place(point))).collect()
        };
        let name = format!("{}, {}", way(direction), mode_name(mode));
        let tone = tone_of(direction, mode);
        let dashed = mode != Mode::Direct;
        if !odd.is_empty() {
            let name = format!("{name}, block ends within a sector");
            let tone = if direction == Direction::Write { chart::WRONG } else { chart::HEAT };
            let points = drawn(odd);
            odd_series.push(Series { name, tone, shape: Shape::Dots, dashed, points });
        }
        series.push(Series { name, tone, shape: Shape::Line, dashed, points: drawn(whole) });
    }
    // In the legend, lines precede dots.
    series.append(&mut odd_series);
    let places = || series.iter().flat_map(|series| series.points.iter()).map(|point| point.x);
    if places().fold(f64::INFINITY, f64::min) >= places().fold(0.0, f64::max) {
        return html! {};
    }
    let tops = series
        .iter()
        .flat_map(|series| series.points.iter())
        .map(|point| point.spread.map_or(point.y, |spread| spread.1));
    let best = of_curve.iter().max_by(|a, b| a.rate.mean.total_cmp(&b.rate.mean));
    let plot = Plot {
        id: format!("sweep-{label}").replace(' ', "-"),
        title: title.into(),
        description: best.map_or(String::new(), |best| {
            format!("The fastest is {} ({}).", text::spread(&best.rate), way(best.direction))
        }),
        height: 270.0,
        x: Axis::logarithmic(label, quantity, places()).with_room(),
        y: Axis::from_zero("rate", Quantity::Rate, tops),
        series: series.clone(),
        marks: Vec::new(),
    };
    let fixed = what_is_fixed(&of_curve, curve);
    html! {
        figure {
            figcaption { (title) @if !fixed.is_empty() { span { (fixed) } } }
            (plot.legend())
            (plot.svg())
        }
    }
}

/// The directions and modes present, in order.
fn ways(points: &[&SweepPoint]) -> Vec<(Direction, Mode)> {
    let mut ways: Vec<(Direction, Mode)> = Vec::new();
    for point in points {
        if !ways.contains(&(point.direction, point.mode)) {
            ways.push((point.direction, point.mode));
        }
    }
    ways
}

fn sweep_point(point: &SweepPoint, x: f64) -> Point {
    let rate = &point.rate;
    let spread = (rate.mean - rate.deviation, rate.mean + rate.deviation);
    Point {
        x,
        y: rate.mean,
        spread: (rate.runs > 1).then_some(spread),
        note: format!(
            "{} {}, blocks of {}, {} in flight: {} ({} to {})",
            way(point.direction),
            mode_name(point.mode),
            text::block_size(point.block_bytes),
            point.depth,
            text::spread(rate),
            text::rate(rate.least),
            text::rate(rate.most)
        ),
    }
}

/// The settings that all points of a curve share.
fn what_is_fixed(points: &[&SweepPoint], curve: Curve) -> String {
    let same = |of: fn(&SweepPoint) -> u64| {
        let mut values = points.iter().map(|point| of(point));
        let first = values.next()?;
        values.all(|value| value == first).then_some(first)
    };
    let mut told = Vec::new();
    if curve != Curve::Block
        && let Some(bytes) = same(|point| point.block_bytes)
    {
        told.push(format!("blocks of {}", text::block_size(bytes)));
    }
    if curve != Curve::Session
        && let Some(bytes) = same(|point| point.session_bytes)
    {
        told.push(format!("sessions of {}", text::block_size(bytes)));
    }
    if curve != Curve::Depth
        && let Some(depth) = same(|point| u64::from(point.depth))
    {
        told.push(format!("{depth} in flight"));
    }
    if let Some(runs) = same(|point| u64::from(point.rate.runs)) {
        told.push(if runs == 1 { "one run each".into() } else { format!("{runs} runs each") });
    }
    told.join(", ")
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Direct => "direct",
        Mode::Buffered => "buffered",
        Mode::Uncached => "uncached",
    }
}

fn tone_of(direction: Direction, mode: Mode) -> chart::Tone {
    match (direction, mode) {
        (Direction::Write, Mode::Direct) => chart::WRITE,
        (Direction::Read, Mode::Direct) => chart::READ,
        (Direction::Write, Mode::Buffered) => chart::OTHER,
        (Direction::Read, Mode::Buffered) => chart::HEAT,
        (Direction::Write, Mode::Uncached) => chart::OTHER + 1,
        (Direction::Read, Mode::Uncached) => chart::OTHER + 2,
    }
}

/// The comparison of modes.
fn modes(result: &BenchResult) -> Markup {
    let points: Vec<&SweepPoint> =
        result.sweep.iter().filter(|point| point.curves.contains(&Curve::Mode)).collect();
    if points.len() < 2 {
        return html! {};
    }
    let rows: Vec<Bar> = points
        .iter()
        .map(|point| Bar {
            name: format!("{}, {}", way(point.direction), mode_name(point.mode)),
            value: point.rate.mean,
            spread: (point.rate.runs > 1).then_some((point.rate.least, point.rate.most)),
            tone: tone_of(point.direction, point.mode),
        })
        .collect();
    let told: Vec<String> =
        rows.iter().map(|row| format!("{}: {}", row.name, text::rate(row.value))).collect();
    let bars = Bars {
        id: "modes".into(),
        title: "Rate by mode".into(),
        description: told.join("; "),
        quantity: Quantity::Rate,
        rows,
        line: None,
    };
    page::figure("Rate by mode", &what_is_fixed(&points, Curve::Mode), &bars.svg())
}

/// The table of blocks that end within a sector, and their cost.
fn modify_table(result: &BenchResult) -> Markup {
    let rows: Vec<Vec<String>> = result
        .sweep
        .iter()
        .filter_map(|point| Some((point, point.read_modify_write.as_ref()?)))
        .map(|(point, cost)| {
            vec![
                format!("{} {}", way(point.direction), text::block_size(point.block_bytes)),
                text::spread(&point.rate),
                cost.ratio_to_aligned.map_or("–".into(), text::share),
                text::size(cost.extra_read_bytes as f64),
                text::size(cost.extra_written_bytes as f64),
                match cost.by {
                    Modifier::Program => "this program".into(),
                    Modifier::Kernel => "page cache".into(),
                },
            ]
        })
        .collect();
    let heads =
        ["block", "rate", "beside whole pages", "read besides", "written besides", "done by"];
    page::table("Blocks that end within a sector: it is read, changed and written", &heads, &rows)
}

/// The rate of each run, if requested.
fn iteration_table(result: &BenchResult) -> Markup {
    let listed = result.sweep.iter().filter(|point| !point.iterations.is_empty());
    let rows: Vec<Vec<String>> = listed
        .map(|point| {
            let each: Vec<String> = point.iterations.iter().copied().map(text::rate).collect();
            vec![
                format!("{} {}", way(point.direction), mode_name(point.mode)),
                text::block_size(point.session_bytes),
                text::block_size(point.block_bytes),
                point.depth.to_string(),
                text::rate(point.rate.mean),
                text::rate(point.rate.deviation),
                each.join(", "),
            ]
        })
        .collect();
    let heads = ["way", "session", "block", "in flight", "mean", "standard deviation", "each run"];
    page::table_with_words("Each run", &heads, &rows)
}

fn sweep_table(result: &BenchResult) -> Markup {
    let rows: Vec<Vec<String>> = result
        .sweep
        .iter()
        .map(|point| {
            vec![
                format!("{} {}", way(point.direction), mode_name(point.mode)),
                text::block_size(point.session_bytes),
                text::block_size(point.block_bytes),
                point.depth.to_string(),
                point.files.to_string(),
                text::spread(&point.rate),
                text::rate(point.rate.least),
                text::rate(point.rate.most),
                text::milliseconds(point.slowest_ms),
                format!("{:.3}", point.cpu_s_per_gb),
                format!(
                    "{}{}",
                    text::size(point.moved_bytes as f64),
                    if point.cut_by_time { "*" } else { "" }
                ),
            ]
        })
        .collect();
    let heads = [
        "way",
        "session",
        "block",
        "in flight",
        "files",
        "rate",
        "slowest run",
        "fastest run",
        "slowest request",
        "CPU s/GB",
        "moved",
    ];
    html! {
        h3 { "All points" }
        (page::table("", &heads, &rows))
        @if result.sweep.iter().any(|point| point.cut_by_time) {
            p.lead { "* a run ended by time before its session was moved whole." }
        }
    }
}
