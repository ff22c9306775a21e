//! Several results in one report: drives or disk sets side by side, peak and continuous, write and read.
//!
//! Results with the same name are runs of one drive: their figures are averaged, and the deviation is shown. Peaks are
//! means of the short sessions of each run; continuous rates are those of the long runs.

use maud::{Markup, html};

use super::chart::{self, Axis, BarKind, Group, Groups, Plot, Point, Quantity, Series, Shape};
use super::{disk, name, page, screen, subject, text};
use crate::bench::result::{BenchResult, Curve, Direction, Mode, Spread, Verdict};

/// A drive or a disk set with all of its results.
#[derive(Clone, Debug)]
pub struct Drive {
    /// The name.
    pub name: String,
    /// The results, at least one.
    pub results: Vec<BenchResult>,
}

/// Groups results by name, in the order of first occurrence. A result without a name is named after its target, and
/// after its host too if there are several hosts.
pub fn drives(results: Vec<(Option<String>, BenchResult)>) -> Vec<Drive> {
    let mut hosts: Vec<&str> = results.iter().map(|(_, it)| &*it.environment.host).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let with_host = hosts.len() > 1;
    let mut drives: Vec<Drive> = Vec::new();
    for (given, result) in results {
        let name = given.unwrap_or_else(|| match with_host && !result.targets.is_empty() {
            true => format!("{}: {}", result.environment.host, subject(&result)),
            false => subject(&result),
        });
        match drives.iter_mut().find(|drive| drive.name == name) {
            Some(drive) => drive.results.push(result),
            None => drives.push(Drive { name, results: vec![result] }),
        }
    }
    drives
}

impl Drive {
    fn spread(&self, of: impl Fn(&BenchResult) -> Option<f64>) -> Option<Spread> {
        let values: Vec<f64> = self.results.iter().filter_map(of).filter(|it| *it > 0.0).collect();
        (!values.is_empty()).then(|| Spread::of(&values))
    }

    /// The rate of the fastest short session, as a mean of its runs.
    fn peak(&self, direction: Direction) -> Option<Spread> {
        if let [result] = self.results.as_slice() {
            return disk::peak(result, direction).map(|point| point.rate);
        }
        self.spread(|result| disk::peak(result, direction).map(|point| point.rate.mean))
    }

    fn continuous(&self, direction: Direction) -> Option<Spread> {
        self.spread(|result| {
            let run = result.continuous.as_ref()?;
            match direction {
                Direction::Write => Some(run.write.rate),
                Direction::Read => run.read.as_ref().map(|read| read.rate),
            }
        })
    }

    fn sustained(&self) -> Option<Spread> {
        self.spread(|result| Some(result.continuous.as_ref()?.recommended.sustained.0 as f64))
    }

    /// The worst verdict of several runs.
    fn verdict(&self) -> Option<&Verdict> {
        let verdicts = self.results.iter().filter_map(|result| result.verdict.as_ref());
        verdicts.min_by_key(|verdict| (verdict.holds, verdict.not_shown, verdict.sustained.0))
    }

    /// The four figures of a drive: peak and continuous, write and read.
    fn figures(&self) -> [Option<Spread>; 4] {
        let ways = [Direction::Write, Direction::Read];
        let [[a, b], [c, d]] = ways.map(|way| [self.peak(way), self.continuous(way)]);
        [a, b, c, d]
    }
}

/// The names and styles of the four figures.
const KINDS: [BarKind; 4] = [
    BarKind { name: "peak write", tone: chart::WRITE, pale: true },
    BarKind { name: "continuous write", tone: chart::WRITE, pale: false },
    BarKind { name: "peak read", tone: chart::READ, pale: true },
    BarKind { name: "continuous read", tone: chart::READ, pale: false },
];

/// The whole page.
pub fn html_of_several(drives: &[Drive]) -> String {
    let title = format!("{} of {} side by side", what(drives), drives.len());
    let all = table(drives);
    let body = html! {
        header.top {
            p.kicker { (what(drives)) }
            h1 { (drives.len()) " drives or disk sets side by side" }
            p.under { (under(drives)) }
        }
        section {
            h2 { "Peak beside continuous" }
            p.lead {
                "A peak is the fastest of the short sessions, the mean of its runs. A recording lives on the continuous rate: "
                "that of one long run, with the sync at its end. Whiskers are one standard deviation."
            }
            (page::figure("Written and read, peak and continuous", "", &groups(drives).markup()))
            (columns_of(&all, &[0, 3, 4, 5, 6]))
            (columns_of(&all, &[0, 1, 2, 7, 8]))
        }
        section {
            h2 { "Peak rate against the size of a session" }
            (by_session(drives, Direction::Read))
            (by_session(drives, Direction::Write))
        }
        section {
            h2 { "What was measured" }
            @for drive in drives {
                h3 { (drive.name) }
                (targets(drive))
            }
        }
    };
    page::whole(&title, &body)
}

/// The same as a table for the screen, with the names left-aligned.
pub fn screen_of_several(drives: &[Drive]) -> String {
    let (heads, mut rows) = table(drives);
    let width = rows.iter().map(|row| row[0].chars().count()).max().unwrap_or(0);
    rows.iter_mut().for_each(|row| row[0] = format!("{:width$}", row[0]));
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    screen::columns(&heads, &rows)
}

/// Some columns of the table, because all of them are too wide for a page.
fn columns_of((heads, rows): &(Vec<String>, Vec<Vec<String>>), wanted: &[usize]) -> Markup {
    let chosen = |row: &Vec<String>| -> Vec<String> {
        wanted.iter().filter_map(|&column| row.get(column).cloned()).collect()
    };
    let heads = chosen(heads);
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    page::table("", &heads, &rows.iter().map(chosen).collect::<Vec<_>>())
}

fn what(drives: &[Drive]) -> &'static str {
    drives.first().and_then(|drive| drive.results.first()).map_or("Benchmark", |it| name(it.kind))
}

fn under(drives: &[Drive]) -> String {
    let mut told: Vec<String> = Vec::new();
    for result in drives.iter().flat_map(|drive| &drive.results) {
        let machine = &result.environment;
        let line = format!("{} · {}", machine.host, machine.program);
        if !told.contains(&line) {
            told.push(line);
        }
    }
    let days = drives.iter().flat_map(|drive| &drive.results).map(|result| &result.started);
    let (first, last) = (days.clone().min(), days.max());
    let time = |time: &String| time.replace('T', " ").replace('Z', " UTC");
    told.extend(first.zip(last).map(|(first, last)| match first == last {
        true => time(first),
        false => format!("{} to {}", time(first), time(last)),
    }));
    told.join(" · ")
}

fn rate(spread: Option<Spread>) -> String {
    match spread {
        None => "–".into(),
        Some(it) if it.runs > 1 && it.deviation > 0.0 => {
            format!("{} ± {}", text::rate(it.mean), text::rate(it.deviation))
        }
        Some(it) => text::rate(it.mean),
    }
}

/// One row per drive. The head states the required rate in bytes and in bits.
fn table(drives: &[Drive]) -> (Vec<String>, Vec<Vec<String>>) {
    let mut heads: Vec<String> = ["", "runs", "disks"].map(str::to_owned).to_vec();
    heads.extend(KINDS.iter().map(|kind| kind.name.to_owned()));
    heads.push("sustained".into());
    let requested: Vec<&Verdict> = drives.iter().filter_map(Drive::verdict).collect();
    if let Some(first) = requested.first() {
        let duty = duty_of_all(drives);
        heads.push(match requested.iter().all(|verdict| verdict.required == first.required) {
            true => format!("holds {}{duty}?", both(first.required)),
            false => "holds what was asked for?".into(),
        });
    }
    let row = |drive: &Drive| {
        let disks = drive.results.first().map_or(0, |result| result.targets.len());
        let mut row = vec![drive.name.clone(), drive.results.len().to_string(), disks.to_string()];
        row.extend(drive.figures().map(rate));
        row.push(rate(drive.sustained()));
        if !requested.is_empty() {
            row.push(match drive.verdict() {
                None => "not judged".into(),
                Some(verdict) if verdict.holds => "HOLDS".into(),
                Some(verdict) if verdict.not_shown => "NOT SHOWN".into(),
                Some(verdict) => format!("NO, {}", both(verdict.sustained)),
            });
        }
        row
    };
    (heads, drives.iter().map(row).collect())
}

/// ` at 40 s / 20 s`, if all results have that duty cycle.
fn duty_of_all(drives: &[Drive]) -> String {
    let told = |result: &BenchResult| {
        let duty = result.continuous.as_ref()?.duty.as_ref()?;
        Some(format!(" at {} s / {} s", duty.record_s, duty.pause_s))
    };
    let mut all = drives.iter().flat_map(|drive| &drive.results).map(told);
    let first = all.next().flatten();
    first.filter(|first| all.all(|other| other.as_ref() == Some(first))).unwrap_or_default()
}

/// A rate in bytes and in bits per second.
fn both(rate: fullbore_core::units::ByteRate) -> String {
    format!("{rate} ({})", text::rate(rate.0 as f64))
}

/// The chart of all drives.
fn groups(drives: &[Drive]) -> Groups {
    let told = drives.iter().map(|drive| {
        let figures = drive.figures().map(rate);
        let figures: Vec<String> =
            KINDS.iter().zip(figures).map(|(kind, rate)| format!("{} {rate}", kind.name)).collect();
        format!("{}: {}", drive.name, figures.join(", "))
    });
    let required = drives.iter().filter_map(Drive::verdict).map(|verdict| verdict.required).max();
    Groups {
        id: "side-by-side".into(),
        title: "Peak and continuous rates side by side".into(),
        description: told.collect::<Vec<_>>().join("; "),
        quantity: Quantity::Rate,
        kinds: KINDS.to_vec(),
        groups: drives
            .iter()
            .map(|drive| Group {
                name: drive.name.clone(),
                values: drive.figures().map(|it| it.map(|it| (it.mean, it.deviation))).to_vec(),
            })
            .collect(),
        line: required.map(|rate| (rate.0 as f64, format!("asked for: {}", both(rate)))),
    }
}

/// A line for each drive: the rate of its sessions by size.
fn by_session(drives: &[Drive], direction: Direction) -> Markup {
    let series: Vec<Series> =
        drives.iter().enumerate().map(|(number, drive)| line(number, drive, direction)).collect();
    let points = || series.iter().flat_map(|series| &series.points);
    let mut sizes: Vec<f64> = points().map(|point| point.x).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    if sizes.len() < 2 {
        return html! {};
    }
    let way = disk::way(direction);
    let title = format!("Peak {way} rate");
    let best = points().map(|point| point.y).fold(0.0, f64::max);
    let tops = points().map(|point| point.spread.map_or(point.y, |spread| spread.1));
    let plot = Plot {
        id: format!("sessions-{way}"),
        description: format!("{} drives; the fastest reaches {}.", drives.len(), text::rate(best)),
        height: 300.0,
        x: Axis::logarithmic("session", Quantity::BlockSize, sizes.iter().copied()),
        y: Axis::from_zero("rate", Quantity::Rate, tops),
        series: series.clone(),
        marks: Vec::new(),
        title: title.clone(),
    };
    html! { (page::figure(&title, "", &html! { (plot.legend()) (plot.svg()) })) }
}

fn line(number: usize, drive: &Drive, direction: Direction) -> Series {
    // Each size once: the first mode measured, direct if possible.
    let of_curve = |result: &BenchResult| -> Vec<(u64, Spread, Mode)> {
        let points = result
            .sweep
            .iter()
            .filter(|point| point.curves.contains(&Curve::Session) && point.direction == direction);
        points.map(|point| (point.session_bytes, point.rate, point.mode)).collect()
    };
    let measured: Vec<(u64, Spread, Mode)> = drive.results.iter().flat_map(of_curve).collect();
    let mode = measured.first().map(|it| it.2);
    let mut sizes: Vec<u64> =
        measured.iter().filter(|it| Some(it.2) == mode).map(|it| it.0).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let point = |size: u64| {
        let of_size: Vec<Spread> = measured
            .iter()
            .filter(|it| it.0 == size && Some(it.2) == mode)
            .map(|it| it.1)
            .collect();
        let rate = match of_size.as_slice() {
            [one] => *one,
            several => Spread::of(&several.iter().map(|it| it.mean).collect::<Vec<_>>()),
        };
        Point {
            x: size as f64,
            y: rate.mean,
            spread: (rate.runs > 1)
                .then_some(((rate.mean - rate.deviation).max(0.0), rate.mean + rate.deviation)),
            note: format!("{}, {}: {}", drive.name, text::block_size(size), text::rate(rate.mean)),
        }
    };
    Series {
        name: drive.name.clone(),
        tone: number,
        shape: Shape::Line,
        dashed: number >= 8,
        points: sizes.into_iter().map(point).collect(),
    }
}

/// The description of a drive from its result.
fn targets(drive: &Drive) -> Markup {
    let Some(result) = drive.results.first() else { return html! {} };
    let rows: Vec<Vec<String>> = result
        .targets
        .iter()
        .map(|target| {
            let or = |value: &Option<String>| value.clone().unwrap_or_else(|| "–".into());
            let link = target.link_speed.as_ref().zip(target.link_width);
            vec![
                target.path.clone(),
                or(&target.model),
                link.map_or("unknown".into(), |(speed, width)| format!("{speed} ×{width}")),
                or(&target.file_system),
                text::size(target.capacity.0 as f64),
            ]
        })
        .collect();
    page::table("", &["target", "model", "link", "file system", "capacity"], &rows)
}
