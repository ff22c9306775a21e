//! Results for people and programs: CSV, JSON, pictures and text.

mod figure;
mod table;

use std::io;
use std::path::Path;
use std::str::FromStr;

use serde::Serialize;

use crate::analysis::Analysis;
use crate::chart::{self, Figure};
use crate::levels;
use crate::plan::{LineId, Wanted};

/// What of an analysis is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// Power over frequency.
    Spectrum,
    /// Power over frequency and time.
    Waterfall,
    /// The fractions of samples at each level.
    Histogram,
    /// Power over time.
    Series,
    /// Power, phase and coherence of two lines over frequency.
    Cross([LineId; 2]),
}

impl Product {
    /// The product that these choices name; a spectrum without any.
    pub fn chosen(
        waterfall: bool,
        histogram: bool,
        series: bool,
        cross: Option<[LineId; 2]>,
    ) -> Self {
        match (cross, waterfall, histogram, series) {
            (Some(lines), ..) => Product::Cross(lines),
            (None, true, ..) => Product::Waterfall,
            (None, _, true, _) => Product::Histogram,
            (None, _, _, true) => Product::Series,
            (None, false, false, false) => Product::Spectrum,
        }
    }

    /// The sums that it needs.
    pub fn wanted(self) -> Wanted {
        let none = Wanted::default();
        match self {
            Product::Spectrum | Product::Waterfall => Wanted { spectra: true, ..none },
            Product::Histogram => Wanted { levels: true, power: true, ..none },
            Product::Series => Wanted { power: true, ..none },
            Product::Cross(lines) => Wanted { cross: Some(lines), ..none },
        }
    }

    /// True if it has a result for each bin of time.
    pub fn is_over_time(self) -> bool {
        matches!(self, Product::Waterfall | Product::Series)
    }

    fn name(self) -> &'static str {
        match self {
            Product::Spectrum => "spectrum",
            Product::Waterfall => "waterfall",
            Product::Histogram => "histogram",
            Product::Series => "series",
            Product::Cross(_) => "cross",
        }
    }
}

/// The format of a file of results, by the ending of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// Text with commas.
    Csv,
    /// JSON.
    Json,
    /// A picture of pixels.
    Png,
    /// A picture of vectors.
    Svg,
    /// A page.
    Pdf,
}

/// A name has no known ending.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: the name of a result ends in .png, .svg, .pdf, .csv or .json")]
pub struct EndingError {
    name: String,
}

impl FileFormat {
    /// The format of a file.
    pub fn of(path: &Path) -> Result<Self, EndingError> {
        let ending = path.extension().and_then(|ending| ending.to_str());
        let ending = ending.map(str::to_ascii_lowercase);
        match ending.as_deref() {
            Some("csv") => Ok(Self::Csv),
            Some("json") => Ok(Self::Json),
            Some("png") => Ok(Self::Png),
            Some("svg") => Ok(Self::Svg),
            Some("pdf") => Ok(Self::Pdf),
            _ => Err(EndingError { name: path.display().to_string() }),
        }
    }
}

impl FromStr for FileFormat {
    type Err = EndingError;

    fn from_str(text: &str) -> Result<Self, EndingError> {
        Self::of(Path::new(text))
    }
}

/// A result.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `spectrum`, for programs that read lines of several kinds.
    pub event: &'static str,
    /// What it shows: `spectrum`, `waterfall`, `histogram`, `series` or `cross`.
    pub product: &'static str,
    /// The file or stream.
    pub input: String,
    /// The samples.
    pub samples: String,
    /// The time of the first sample, UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// The window.
    pub window: &'static str,
    /// Segments in the result, of all threads.
    pub segments: u64,
    /// Segments left out, because samples of them are absent.
    pub segments_left_out: u64,
    /// Samples of a segment.
    pub segment_samples: usize,
    /// Invalid frames, fill, and frames of another kind.
    pub frames_left_out: u64,
    /// The power that is 0 dB, in squares of levels.
    pub full_scale: f64,
    /// Frequencies in Hz; in cycles per sample if `sample_rate_known` is false.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frequency: Vec<f64>,
    /// True if frequencies are in Hz.
    pub sample_rate_known: bool,
    /// Seconds from the start to the start of each row.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub seconds: Vec<f64>,
    /// The values of the levels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<f64>,
    /// The channels of all threads, or the one pair of them.
    pub lines: Vec<Line>,
    /// Notes on data that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<String>,
}

/// The result of one line. Powers are in squares of levels.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Line {
    /// The name: of a channel, or of a pair.
    pub name: String,
    /// Power by frequency or by time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub power: Vec<Option<f64>>,
    /// The rows of a waterfall: power by frequency, or nothing if no segment was whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<Option<Vec<f64>>>,
    /// Phase of the first against the second, in degrees.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phase_degrees: Vec<f64>,
    /// Coherence, from 0 to 1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub coherence: Vec<f64>,
    /// Samples at each level.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<u64>,
    /// The fraction of samples at each level.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fractions: Vec<f64>,
    /// The fraction of a Gaussian signal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expected: Vec<f64>,
    /// The mean, in levels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// The standard deviation, in levels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deviation: Option<f64>,
}

impl Report {
    /// The result of an analysis, whose plan has the sums of the product.
    pub fn new(of: &Analysis, product: Product) -> Self {
        let lines = of.lines().into_iter();
        let (frequencies, bins) = (of.frequencies(), of.bins());
        let is_spectral = !matches!(product, Product::Histogram | Product::Series);
        let lines = match product {
            Product::Spectrum => lines.map(|line| of_spectrum(of, line)).collect(),
            Product::Waterfall => {
                let rows = |line| bins.iter().map(|bin| of.spectrum(line, *bin)).collect();
                let line =
                    |line| Line { name: of.line_name(line), rows: rows(line), ..Line::default() };
                lines.map(line).collect()
            }
            Product::Histogram => lines.filter_map(|line| of_levels(of, line)).collect(),
            Product::Series => {
                let power = |line| bins.iter().map(|bin| of.power(line, *bin)).collect();
                let line =
                    |line| Line { name: of.line_name(line), power: power(line), ..Line::default() };
                lines.map(line).collect()
            }
            Product::Cross(pair) => of_cross(of, pair).into_iter().collect(),
        };
        let seconds = bins.iter().map(|bin| of.seconds(*bin));
        Self {
            event: "spectrum",
            product: product.name(),
            input: of.name.clone(),
            samples: of.layout.to_string(),
            start: of.start.map(|start| start.to_string()),
            window: of.plan.window.name(),
            segments: of.segments,
            segments_left_out: of.segments_left_out,
            segment_samples: of.plan.segment(&of.layout),
            frames_left_out: of.frames_left_out,
            full_scale: crate::analysis::full_scale(of.layout.encoding.code),
            frequency: if is_spectral { frequencies } else { Vec::new() },
            sample_rate_known: of.layout.sample_rate.is_some(),
            seconds: if product.is_over_time() { seconds.collect() } else { Vec::new() },
            levels: if product == Product::Histogram { of.level_values() } else { Vec::new() },
            lines,
            losses: of.losses.clone(),
        }
    }

    /// A power in decibels relative to full scale.
    pub fn decibels(&self, power: f64) -> f64 {
        10.0 * (power / self.full_scale).log10()
    }

    /// The bytes of a file.
    pub fn file(&self, format: FileFormat) -> io::Result<Vec<u8>> {
        Ok(match format {
            FileFormat::Csv => self.csv().into_bytes(),
            FileFormat::Json => serde_json::to_vec(self).map_err(io::Error::other)?,
            FileFormat::Png => chart::png(&self.figure()),
            FileFormat::Svg => chart::svg(&self.figure()).into_bytes(),
            FileFormat::Pdf => chart::pdf(&self.figure()),
        })
    }

    /// The picture.
    pub fn figure(&self) -> Figure {
        figure::figure(self)
    }

    /// The table.
    pub fn csv(&self) -> String {
        table::csv(self)
    }

    /// What a person is told: a line for each channel, and what was left out.
    pub fn summary(&self) -> String {
        table::summary(self)
    }

    /// The summary below a picture that fits a terminal of this many rows and columns. A small one has no picture.
    pub fn page(&self, rows: usize, columns: usize) -> String {
        let summary = self.summary();
        let lines = |line: &str| line.chars().count().div_ceil(columns.max(1)).max(1);
        let below: usize = summary.lines().map(lines).sum();
        match rows.saturating_sub(below + 1) {
            rows if rows < chart::terminal::FEWEST_ROWS => summary,
            rows => chart::terminal::text(&self.figure(), columns, rows) + &summary,
        }
    }
}

fn of_spectrum(of: &Analysis, line: LineId) -> Line {
    let power = of.whole_spectrum(line).into_iter().map(Some).collect();
    Line { name: of.line_name(line), power, ..Line::default() }
}

fn of_levels(of: &Analysis, line: LineId) -> Option<Line> {
    let row = of.sums.levels.get(&line.thread?)?.get(line.channel)?;
    let counts: Vec<u64> =
        levels::order(of.layout.encoding).into_iter().map(|code| row[code]).collect();
    let all = counts.iter().sum::<u64>().max(1) as f64;
    let whole = of.whole(line);
    let mean = whole.sum / all;
    let deviation = (whole.squares / all - mean * mean).max(0.0).sqrt();
    Some(Line {
        name: of.line_name(line),
        fractions: counts.iter().map(|count| *count as f64 / all).collect(),
        expected: levels::expected(of.layout.encoding, mean, deviation),
        counts,
        mean: Some(mean),
        deviation: Some(deviation),
        ..Line::default()
    })
}

fn of_cross(of: &Analysis, [one, other]: [LineId; 2]) -> Option<Line> {
    let cross = of.cross()?;
    Some(Line {
        name: format!("{one}, {other}"),
        power: cross.power.into_iter().map(Some).collect(),
        phase_degrees: cross.phase_degrees,
        coherence: cross.coherence,
        ..Line::default()
    })
}
