//! Files of samples as sources: `sigmf:x`, `file:x.sigmf-meta`, `file:x.npy` and `file:x.wav`.
//!
//! ```text
//! without gaps   file:x.npy?skip=128&bytes=4000&samples=ri16_le&channels=2             a stream of bytes
//! with gaps      sigmf:x.sigmf-data?samples=…                                          counted frames
//! ```
//!
//! The file says what its samples are, so its endpoint needs no parameters for that. With gaps, the samples are cut into
//! frames that fit each run and each gap, and each frame has an index. So the account lists the gaps, and the
//! recording is filled as if the frames had been lost on a network.

use std::path::PathBuf;

use fullbore_capture::{FrameRun, INDEX_BYTES, SampleFrames};
use fullbore_containers::read::{ReadError, SampleFile};
use fullbore_core::device::BytesStream;
use fullbore_core::endpoint::{Endpoint, Error, UdpSource};
use fullbore_engine::recorder::{SourceConfig, WaitingInput, WaitingSource};
use fullbore_formats::samples::{PARAMETERS, SampleLayout};

/// The most bytes of a frame that gaps are counted in.
const MOST_FRAME_BYTES: u64 = 8192;

/// The fewest bytes of one: shorter frames cost more time than they are worth.
const LEAST_FRAME_BYTES: u64 = 16;

/// A gap of more bytes is believed only if several frames follow it.
const FAR_BYTES: u64 = 64 << 10;

/// The number of frames that are believed after such a gap.
const AGREEING_FRAMES: u64 = 8;

/// The name of a stream without one.
const NAME: &str = "file";

/// True if the text names a file of samples.
pub fn is_meant(text: &str) -> bool {
    let Some((scheme, rest)) = text.trim().split_once(':') else { return false };
    let path = rest.split_once('?').map_or(rest, |(path, _)| path).to_ascii_lowercase();
    let endings = [".sigmf-meta", ".sigmf-data", ".npy", ".wav", ".rf64", ".bw64"];
    let ending = endings.iter().any(|ending| path.ends_with(ending));
    // A file of samples whose layout is given is a plain file.
    let plain = ["samples=", "skip=", "bytes="].iter().any(|it| rest.contains(it));
    scheme.eq_ignore_ascii_case("sigmf") || scheme.eq_ignore_ascii_case("file") && ending && !plain
}

/// Reads one endpoint, and the metadata of the file.
pub fn parse(text: &str) -> Result<SourceConfig, Error> {
    let endpoint: Endpoint = text.parse()?;
    let path = super::packet_files::path_of(&endpoint)?;
    let file = SampleFile::open(&path).map_err(unreadable)?;
    let parameters = parameters(&endpoint, &file)?;
    let name = endpoint.parameters.iter().find(|(name, _)| name == "name");
    let name = name.map_or(NAME, |(_, name)| name).to_owned();
    match frames(&file) {
        Some(frames) => counted(&file, frames, name, parameters),
        None => bytes(file, name, parameters),
    }
}

fn unreadable(error: ReadError) -> Error {
    Error::Together { what: error.to_string() }
}

/// The parameters of the samples: those of the file, and those of the endpoint that the file does not state.
fn parameters(endpoint: &Endpoint, file: &SampleFile) -> Result<Vec<(String, String)>, Error> {
    let mut all = of_layout(&file.layout);
    for (name, value) in &endpoint.parameters {
        if name == "name" {
            continue;
        }
        let what = if !PARAMETERS.iter().any(|row| row.0 == name) {
            format!(
                "`{name}` has no meaning for a file of samples: it may have `name`, `scale` and the like"
            )
        } else if all.iter().any(|(known, _)| known == name) {
            format!("{}: the file itself states `{name}`: leave it out", file.path.display())
        } else {
            all.push((name.clone(), value.clone()));
            continue;
        };
        return Err(Error::Together { what });
    }
    Ok(all)
}

fn of_layout(layout: &SampleLayout) -> Vec<(String, String)> {
    let names = layout.channel_names.join(",");
    let values = [
        ("samples", Some(layout.encoding.to_string())),
        ("channels", Some(layout.channels.to_string())),
        ("sample_rate", layout.sample_rate.map(|it| it.to_string())),
        ("scale", layout.slope.map(|it| it.get().to_string())),
        ("intercept", layout.intercept.map(|it| it.get().to_string())),
        ("unit", layout.unit.clone()),
        ("frequency", layout.frequency_hz.map(|it| it.get().to_string())),
        ("channel_names", (!names.is_empty()).then_some(names)),
    ];
    let given = values.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    given.collect()
}

/// The frames of a file with gaps; `None` if it has none, or if no frames fit them.
fn frames(file: &SampleFile) -> Option<SampleFrames> {
    let sample_bytes = file.sample_bytes();
    let length = file.common_length(MOST_FRAME_BYTES / sample_bytes.max(1));
    let frame_bytes = length.checked_mul(sample_bytes)?;
    if !file.has_gaps() || frame_bytes < LEAST_FRAME_BYTES {
        return None;
    }
    let (all, base) = (file.bytes / sample_bytes, file.runs.first()?.in_stream);
    let ends = file.runs.iter().skip(1).map(|run| run.in_file).chain([all]);
    let run = |(run, end): (&fullbore_containers::read::SampleRun, u64)| FrameRun {
        frames: (end - run.in_file) / length,
        first: (run.in_stream - base) / length,
        time: run.time,
    };
    let runs: Vec<FrameRun> = file.runs.iter().zip(ends).map(run).collect();
    let is_believed = |pair: &[FrameRun]| {
        let gap = pair[1].first - pair[0].first - pair[0].frames;
        gap.saturating_mul(frame_bytes) <= FAR_BYTES || pair[1].frames >= AGREEING_FRAMES
    };
    let rate = file.layout.sample_rate.and_then(|rate| {
        let (rate, per) = rate.ratio();
        Some((rate, per.checked_mul(length)?))
    });
    let frame_bytes = u32::try_from(frame_bytes).ok()?;
    let fits = runs.windows(2).all(is_believed);
    fits.then_some(SampleFrames { skip: file.skip, frame_bytes, runs, rate })
}

/// Samples with gaps, as datagrams with an index.
fn counted(
    file: &SampleFile,
    frames: SampleFrames,
    name: String,
    parameters: Vec<(String, String)>,
) -> Result<SourceConfig, Error> {
    let mut socket: Endpoint = "udp://[::]:1".parse()?;
    let strip = INDEX_BYTES.to_string();
    let framing = [
        ("name", name),
        ("format", "raw".to_owned()),
        ("seq", format!("0:{strip}:le")),
        ("strip", strip),
        ("frame", frames.frame_bytes.to_string()),
    ];
    let framing = framing.map(|(name, value)| (name.to_owned(), value));
    socket.parameters = framing.into_iter().chain(parameters).collect();
    let mut udp = UdpSource::expand(&socket)?.remove(0);
    udp.endpoint = Endpoint {
        scheme: "sigmf".into(),
        authority: None,
        path: file.path.display().to_string(),
        parameters: socket.parameters,
    };
    let input = WaitingInput::Samples { path: file.path.clone(), frames, notes: told(file) };
    Ok(WaitingSource { input, udp }.into())
}

/// Samples without gaps, as bytes.
fn bytes(
    file: SampleFile,
    name: String,
    parameters: Vec<(String, String)>,
) -> Result<SourceConfig, Error> {
    let mut all = vec![("name".to_owned(), name)];
    if file.skip > 0 {
        all.push(("skip".into(), file.skip.to_string()));
    }
    all.push(("bytes".into(), file.bytes.to_string()));
    all.extend(parameters);
    let endpoint = Endpoint {
        scheme: "file".into(),
        authority: None,
        path: file.path.display().to_string(),
        parameters: all,
    };
    let mut stream = BytesStream::parse(&endpoint.to_string())?;
    stream.notes = told(&file);
    if file.has_gaps() {
        let (runs, path) = (file.runs.len(), file.path.display());
        stream.notes.push(format!(
            "{path}: its {} gaps are not kept, because no frames of {LEAST_FRAME_BYTES} to {MOST_FRAME_BYTES} bytes fit \
             them, or too few samples follow a long gap: the samples follow each other",
            runs - 1
        ));
    }
    if let Some(time) = file.runs.first().and_then(|run| run.time) {
        let path = file.path.display();
        stream.notes.push(format!(
            "{path}: its start, {time}, is not kept: the times of the recording are those of its reading"
        ));
    }
    Ok(stream.into())
}

fn told(file: &SampleFile) -> Vec<String> {
    let path: PathBuf = file.path.clone();
    file.notes.iter().map(|note| format!("{}: {note}", path.display())).collect()
}
