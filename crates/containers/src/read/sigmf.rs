//! The metadata of a SigMF recording, versions 1.0 to 1.2.
//!
//! ```text
//! captures  sample_start 0, global_index 0;  500, 1000      500 samples are absent after the first 500
//! ```

use std::path::{Component, Path, PathBuf};

use fullbore_formats::samples::{Encoding, Finite, MOST_CHANNELS, SampleLayout, SampleRate};
use fullbore_time::Tai;
use serde::Deserialize;

use super::{ReadError, SampleFile, SampleRun, content, read_meta};
use crate::sigmf::{base_of, data_of, meta_of};

#[derive(Deserialize)]
struct Document {
    global: Global,
    #[serde(default)]
    captures: Vec<Capture>,
}

#[derive(Deserialize)]
struct Global {
    #[serde(rename = "core:datatype")]
    datatype: String,
    #[serde(rename = "core:num_channels", default)]
    channels: Option<u64>,
    #[serde(rename = "core:sample_rate", default)]
    sample_rate: Option<f64>,
    #[serde(rename = "core:dataset", default)]
    dataset: Option<String>,
    #[serde(rename = "core:metadata_only", default)]
    metadata_only: bool,
    #[serde(rename = "core:trailing_bytes", default)]
    trailing_bytes: u64,
    #[serde(rename = "fullbore:layout", default)]
    layout: Option<serde_json::Value>,
    #[serde(rename = "fullbore:samples", default)]
    samples: Option<u64>,
}

#[derive(Deserialize)]
struct Capture {
    #[serde(rename = "core:sample_start")]
    sample_start: u64,
    #[serde(rename = "core:global_index", default)]
    global_index: Option<u64>,
    #[serde(rename = "core:datetime", default)]
    datetime: Option<String>,
    #[serde(rename = "core:frequency", default)]
    frequency: Option<f64>,
    #[serde(rename = "core:header_bytes", default)]
    header_bytes: u64,
}

/// What the metadata says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The name of the file of samples beside it, if it is not `x.sigmf-data`.
    pub dataset: Option<String>,
    /// Bytes before the first sample and behind the last one.
    pub around: (u64, u64),
    /// The samples.
    pub layout: SampleLayout,
    /// The runs of samples without a gap.
    pub runs: Vec<SampleRun>,
    /// The first sample of the last capture.
    last_start: u64,
    /// The number of samples, those that are not there too, if fullbore wrote the file.
    samples: Option<u64>,
    /// What cannot be kept.
    pub notes: Vec<String>,
}

/// Opens a recording by the path of any of its files, or without an ending.
pub fn open(path: &Path) -> Result<SampleFile, ReadError> {
    let base = base_of(path);
    let meta = meta_of(&base);
    let recording = parse(&read_meta(&meta)?).map_err(|why| content(&meta, why))?;
    let data = match &recording.dataset {
        None => data_of(&base),
        Some(name) => beside(&meta, name)?,
    };
    let failed = |source| ReadError::Io { path: data.clone(), source };
    let bytes = std::fs::metadata(&data).map_err(failed)?.len();
    recording.in_file(data, bytes).map_err(|why| content(&meta, why))
}

/// The file of this name in the folder of the metadata, which is no link to another folder.
fn beside(meta: &Path, name: &str) -> Result<PathBuf, ReadError> {
    let mut parts = Path::new(name).components();
    let is_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    if !is_name || name.contains('/') {
        let why =
            "`core:dataset` is not the name of a file in the same folder, so it is not opened";
        return Err(content(meta, why));
    }
    let path = meta.with_file_name(name);
    match path.symlink_metadata() {
        Ok(it) if it.is_file() => Ok(path),
        Ok(_) => Err(content(&path, "it is not a plain file, so it is not opened as a dataset")),
        Err(source) => Err(ReadError::Io { path, source }),
    }
}

/// Reads the metadata.
pub fn parse(text: &[u8]) -> Result<Recording, String> {
    let document: Document =
        serde_json::from_slice(text).map_err(|it| format!("it is not SigMF metadata: {it}"))?;
    let Document { global, captures } = document;
    if global.metadata_only {
        return Err("it has no samples (`core:metadata_only`)".into());
    }
    if captures.iter().skip(1).any(|capture| capture.header_bytes > 0) {
        return Err("headers between its captures (`core:header_bytes`) are not supported".into());
    }
    let mut notes = Vec::new();
    let layout = layout(&global, &captures, &mut notes)?;
    let runs = runs(&captures, &layout, &mut notes)?;
    let header_bytes = captures.first().map_or(0, |capture| capture.header_bytes);
    Ok(Recording {
        dataset: global.dataset,
        around: (header_bytes, global.trailing_bytes),
        layout,
        runs,
        last_start: captures.last().map_or(0, |capture| capture.sample_start),
        samples: global.samples,
        notes,
    })
}

fn layout(
    global: &Global,
    captures: &[Capture],
    notes: &mut Vec<String>,
) -> Result<SampleLayout, String> {
    let encoding: Encoding = global.datatype.parse().map_err(|it| format!("{it}"))?;
    if encoding.sigmf_name().is_none() {
        return Err(format!("`{encoding}` is not a datatype of SigMF"));
    }
    let channels = global.channels.unwrap_or(1);
    let channels = u32::try_from(channels).ok().filter(|it| (1..=MOST_CHANNELS).contains(it));
    let channels = channels.ok_or_else(|| {
        format!("`core:num_channels` is not a whole number from 1 to {MOST_CHANNELS}")
    })?;
    let mut layout = SampleLayout::new(encoding, channels);
    layout.sample_rate = global.sample_rate.map(rate).transpose()?;
    let frequency = captures.first().and_then(|capture| capture.frequency);
    layout.frequency_hz = frequency.and_then(|hertz| Finite::try_from(hertz).ok());
    if captures.iter().any(|capture| capture.frequency != frequency) {
        notes.push("its frequency changes, and only the first one is kept".into());
    }
    // What the fields of SigMF agree with is more exact, and has the scale.
    let ours = global.layout.clone().and_then(|it| serde_json::from_value(it).ok());
    let agrees = |ours: &SampleLayout| {
        let hertz = |it: Option<SampleRate>| it.map(SampleRate::hertz);
        (ours.encoding, ours.channels) == (encoding, channels)
            && hertz(ours.sample_rate) == hertz(layout.sample_rate)
            && ours.frequency_hz == layout.frequency_hz
    };
    Ok(ours.filter(agrees).unwrap_or(layout))
}

/// The ratio of a rate whose decimal digits are exact.
fn rate(hertz: f64) -> Result<SampleRate, String> {
    format!("{hertz}")
        .parse()
        .map_err(|_| format!("`core:sample_rate` {hertz} is not a rate that can be kept exactly"))
}

fn runs(
    captures: &[Capture],
    layout: &SampleLayout,
    notes: &mut Vec<String>,
) -> Result<Vec<SampleRun>, String> {
    let mut runs = vec![SampleRun { in_file: 0, in_stream: 0, time: None }];
    let mut goes_back = false;
    let mut before = 0;
    for (number, capture) in captures.iter().enumerate() {
        let start = capture.sample_start;
        if start < before {
            return Err(format!(
                "its captures are not in order: number {number} begins before the one before it"
            ));
        }
        before = start;
        let last = runs.last().expect("there is one");
        let straight = last.in_stream.saturating_add(start - last.in_file);
        let in_stream = capture.global_index.unwrap_or(straight);
        goes_back |= in_stream < straight && start > 0;
        let time = capture.datetime.as_deref().and_then(|text| time(text).ok());
        let run = SampleRun { in_file: start, in_stream, time };
        match runs.last_mut() {
            Some(last) if last.in_file == start => {
                *last = SampleRun { time: time.or(last.time), ..run };
            }
            _ if in_stream == straight => {}
            _ => runs.push(run),
        }
    }
    if goes_back {
        notes.push(
            "the `core:global_index` of its captures goes backwards, so its gaps are not known"
                .into(),
        );
        runs.truncate(1);
    }
    let first = runs[0];
    // The time of a capture that has none follows from the rate.
    for run in &mut runs[1..] {
        let samples = run.in_stream - first.in_stream;
        run.time = run.time.or_else(|| after(first.time?, samples, layout.sample_rate?));
    }
    Ok(runs)
}

/// The time of a sample that comes so many samples later.
pub fn after(time: Tai, samples: u64, rate: SampleRate) -> Option<Tai> {
    let (rate, per) = rate.ratio();
    let ns = (u128::from(samples) * u128::from(per)).checked_mul(1_000_000_000)?;
    Some(Tai(time.0.checked_add(i64::try_from(ns / u128::from(rate)).ok()?)?))
}

/// A time in UTC with any number of digits of the second.
fn time(text: &str) -> Result<Tai, fullbore_time::Error> {
    let plain = text.trim_end_matches(['Z', 'z']);
    match plain.split_once('.') {
        Some((whole, digits)) => {
            let digits: String = digits.chars().take(9).collect();
            format!("{whole}.{digits}Z").parse()
        }
        None => text.parse(),
    }
}

impl Recording {
    /// The recording with a file of samples of this length.
    pub fn in_file(self, path: PathBuf, length: u64) -> Result<SampleFile, String> {
        let Self { around: (before, behind), layout, mut runs, samples, mut notes, .. } = self;
        let last_start = self.last_start;
        let all = length.checked_sub(before).and_then(|left| left.checked_sub(behind));
        let all = all.ok_or_else(|| {
            format!("the file of samples has {length} bytes, fewer than those before and behind the samples")
        })?;
        let unit = layout.sample_bits() / 8;
        let rest = all % unit;
        if rest > 0 {
            notes.push(format!("its last {rest} bytes are not a whole sample, and are left out"));
        }
        let there = all / unit;
        if last_start > there {
            return Err(format!(
                "a capture begins at sample {last_start}, and the file has {there} samples: it is cut, or of another recording"
            ));
        }
        runs.retain(|run| run.in_file < there || run.in_file == 0);
        let last = runs.last().expect("the first one begins at 0");
        let end = last.in_stream.saturating_add(there - last.in_file);
        if let Some(more) = samples.and_then(|all| all.checked_sub(end)).filter(|it| *it > 0) {
            notes.push(format!(
                "{more} samples behind its last one are not there, and are not counted"
            ));
        }
        Ok(SampleFile { path, skip: before, bytes: all - rest, layout, runs, notes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(global: &str, captures: &str) -> Result<Recording, String> {
        parse(
            format!(r#"{{"global":{{{global}}},"captures":[{captures}],"annotations":[]}}"#)
                .as_bytes(),
        )
    }

    const PLAIN: &str = r#""core:datatype":"ci16_le","core:version":"1.0.0""#;

    #[test]
    fn datatype_channels_rate_frequency_and_jumps_are_read() {
        let global = format!(r#"{PLAIN},"core:num_channels":2,"core:sample_rate":204800.5"#);
        let captures = r#"{"core:sample_start":0,"core:frequency":1e9,"core:datetime":"2026-11-21T18:00:00.1234567891Z"},
            {"core:sample_start":100,"core:frequency":1e9},
            {"core:sample_start":500,"core:global_index":409601500,"core:frequency":1e9}"#;
        let read = of(&global, captures).unwrap();
        assert_eq!(
            read.layout.to_string(),
            "2 channels of ci16_le at 409601/2 Hz, around 1000000000 Hz"
        );
        let file = read.in_file("x".into(), 8 * 600 + 3).unwrap();
        assert_eq!((file.bytes, file.runs.len(), file.has_gaps()), (4800, 2, true));
        assert_eq!(file.runs[0].time.unwrap(), "2026-11-21T18:00:00.123456789Z".parse().unwrap());
        assert_eq!(file.runs[1].in_stream, 409_601_500);
        let later = file.runs[1].time.unwrap().since(file.runs[0].time.unwrap());
        assert_eq!(later, 2_000_002_441_400, "409601500 samples at 204800.5 Hz");
        assert_eq!(file.notes.len(), 1, "{:?}", file.notes);
    }

    #[test]
    fn hostile_metadata_is_refused_in_words() {
        let datatype = |name: &str| format!(r#""core:datatype":"{name}""#);
        for (global, captures, word) in [
            (datatype("ci16_lexyz"), "", "ci16_lexyz"),
            (datatype("xci16_le"), "", "xci16_le"),
            (datatype("ro2"), "", "not a datatype"),
            (format!(r#"{PLAIN},"core:num_channels":0"#), "", "num_channels"),
            (format!(r#"{PLAIN},"core:num_channels":99999999999"#), "", "num_channels"),
            (format!(r#"{PLAIN},"core:num_channels":-1"#), "", "not SigMF"),
            (format!(r#"{PLAIN},"core:sample_rate":0"#), "", "sample_rate"),
            (format!(r#"{PLAIN},"core:sample_rate":1e300"#), "", "sample_rate"),
            (format!(r#"{PLAIN},"core:metadata_only":true"#), "", "no samples"),
            (PLAIN.into(), r#"{"core:sample_start":5},{"core:sample_start":4}"#, "not in order"),
            (PLAIN.into(), r#"{"core:sample_start":-5}"#, "not SigMF"),
            (
                PLAIN.into(),
                r#"{"core:sample_start":0},{"core:sample_start":4,"core:header_bytes":1}"#,
                "header",
            ),
            (r#""core:version":"1.0.0""#.into(), "", "datatype"),
        ] {
            let why = of(&global, captures).unwrap_err();
            assert!(why.contains(word), "{global}: {why}");
        }
        let read =
            |bytes| of(PLAIN, r#"{"core:sample_start":9}"#).unwrap().in_file("x".into(), bytes);
        assert!(read(9 * 4).is_ok() && read(9 * 4 - 1).unwrap_err().contains("8 samples"));
        let trailing = format!(r#"{PLAIN},"core:trailing_bytes":18446744073709551615"#);
        assert!(of(&trailing, "").unwrap().in_file("x".into(), 100).unwrap_err().contains("fewer"));
    }

    #[test]
    fn an_index_that_goes_back_is_told_and_leaves_no_gaps() {
        let captures = r#"{"core:sample_start":0,"core:global_index":100},{"core:sample_start":10,"core:global_index":50}"#;
        let read = of(PLAIN, captures).unwrap();
        assert_eq!((read.runs.len(), read.notes.len()), (1, 1));
        let overflow = r#"{"core:sample_start":0,"core:global_index":18446744073709551615},{"core:sample_start":10}"#;
        assert_eq!(of(PLAIN, overflow).unwrap().runs.len(), 1);
    }

    #[test]
    fn our_own_layout_is_kept_only_if_the_fields_of_sigmf_agree() {
        let ours = |rate: &str| {
            let layout = format!(
                r#""fullbore:layout":{{"encoding":"ci16_le","channels":1,"sample_rate":"{rate}","slope":0.5}}"#
            );
            let global = format!(r#"{PLAIN},"core:sample_rate":333.3333333333333,{layout}"#);
            of(&global, "").unwrap().layout
        };
        assert_eq!(ours("1000/3").sample_rate, SampleRate::new(1000, 3));
        assert!(ours("1000/3").slope.is_some() && ours("7").slope.is_none());
    }

    #[test]
    fn a_dataset_is_a_plain_file_in_the_same_folder() {
        let place = tempfile::tempdir().unwrap();
        let meta = place.path().join("in").join("x.sigmf-meta");
        std::fs::create_dir(place.path().join("in")).unwrap();
        std::fs::write(place.path().join("secret"), "12345678").unwrap();
        std::fs::write(meta.with_file_name("x.bin"), "12345678").unwrap();
        std::os::unix::fs::symlink("../secret", meta.with_file_name("link")).unwrap();
        let with = |dataset: &str| {
            let global = format!(r#"{PLAIN},"core:dataset":"{dataset}""#);
            std::fs::write(&meta, format!(r#"{{"global":{{{global}}}}}"#)).unwrap();
            open(&meta)
        };
        assert_eq!(with("x.bin").unwrap().bytes, 8);
        for outside in ["../secret", "/etc/passwd", "..", "", "./x.bin", "link", "x.bin/"] {
            assert!(matches!(with(outside), Err(ReadError::Content { .. })), "{outside}");
        }
        assert!(matches!(with("gone"), Err(ReadError::Io { .. })));
    }
}
