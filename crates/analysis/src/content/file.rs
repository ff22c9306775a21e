//! The file of an index by content: JSON, whose last field is the CRC-32C of all bytes before it.

use std::io;
use std::path::{Path, PathBuf};

use fullbore_formats::samples::SampleLayout;
use fullbore_linux::regular_file;
use fullbore_store::lock::put_file;
use fullbore_store::reader::{Scan, StoredStream};
use fullbore_time::Tai;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Burst;
pub use fullbore_care::remove::CONTENT_FILE;

/// The version of the file.
pub const VERSION: u32 = 1;

/// The most bytes of a file that are read.
const MOST_BYTES: u64 = 1 << 30;

/// The index of a stream by its content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Content {
    /// The version of the file.
    pub version: u32,
    /// The identity of the scan.
    pub scan_uuid: Uuid,
    /// The scan.
    pub scan: String,
    /// The stream.
    pub stream: String,
    /// The samples.
    pub samples: SampleLayout,
    /// The time of the first sample.
    pub start: Option<Tai>,
    /// The power that is 0 dB, in squares of levels.
    pub full_scale: f64,
    /// Seconds with a row.
    pub rows: usize,
    /// The channels of all threads.
    pub lines: Vec<ContentLine>,
    /// The threshold of bursts, as a multiple of the median.
    pub burst_threshold: f64,
    /// The number of bursts, those that are not listed too.
    pub burst_count: u64,
    /// Bursts by time.
    pub bursts: Vec<Burst>,
    /// The number of blocks that could not be read.
    pub lost: u64,
}

/// The rows of one channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContentLine {
    /// The thread.
    pub thread: u16,
    /// The channel of the thread.
    pub channel: usize,
    /// The name.
    pub name: String,
    /// Mean square in each second, in squares of levels; `null` without samples.
    pub power: Vec<Option<f32>>,
    /// The share of absent samples in each second. The last second is shorter, and the rest of it counts as absent.
    pub absent: Vec<f32>,
    /// The mean of all samples, in levels.
    pub mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
    /// Samples at each level, of encodings up to 8 bits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<u64>,
}

/// An index by content that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// There is none.
    #[error("{scan}/{stream} has no index by content")]
    Absent {
        /// The scan.
        scan: String,
        /// The stream.
        stream: String,
    },
    /// The file cannot be read.
    #[error("{}: reading it", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is damaged.
    #[error("{}: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The file cannot be written.
    #[error("{}: writing it", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl fullbore_formats::hint::Hint for ContentError {
    fn hint(&self) -> Option<std::borrow::Cow<'static, str>> {
        match self {
            ContentError::Absent { scan, .. } => {
                Some(format!("`fullbore index {scan}` makes it").into())
            }
            ContentError::Damaged { .. } => Some("`fullbore index` makes it again".into()),
            ContentError::Read { .. } | ContentError::Write { .. } => None,
        }
    }
}

/// The text between the last field and the digits of the checksum, and the text behind them.
const BEFORE: &str = ",\"crc32c\":\"";
const AFTER: &str = "\"}\n";

/// Bytes of the checksum and the texts around it.
const TAIL_BYTES: usize = BEFORE.len() + 8 + AFTER.len();

impl Content {
    /// What a person is told: the channels, and the number of bursts.
    pub fn summary(&self) -> String {
        let (scan, stream, rows, bursts) = (&self.scan, &self.stream, self.rows, self.burst_count);
        let mut text = format!("{scan}/{stream}: {rows} s of {}, {bursts} bursts\n", self.samples);
        for line in &self.lines {
            let powers = || line.power.iter().flatten().map(|power| f64::from(*power));
            let least = powers().fold(f64::INFINITY, f64::min);
            let most = powers().fold(0.0, f64::max);
            let [least, most] = [least, most].map(|power| 10.0 * (power / self.full_scale).log10());
            let (name, mean, deviation) = (&line.name, line.mean, line.deviation);
            text += &format!(
                "  {name}: {least:.2} to {most:.2} dB, mean {mean:.4}, deviation {deviation:.4}\n"
            );
        }
        if self.lost > 0 {
            text += &format!("  {} blocks could not be read\n", self.lost);
        }
        text
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("it has only plain fields");
        assert_eq!(bytes.pop(), Some(b'}'), "a structure ends with a brace");
        let crc = crc32c::crc32c(&bytes);
        bytes.extend(format!("{BEFORE}{crc:08x}{AFTER}").into_bytes());
        bytes
    }

    /// Reads the bytes of a file.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let cut = bytes.len().checked_sub(TAIL_BYTES).ok_or("it is too short")?;
        let (body, tail) = bytes.split_at(cut);
        let crc = crc32c::crc32c(body);
        if tail != format!("{BEFORE}{crc:08x}{AFTER}").as_bytes() {
            return Err("its checksum is wrong".to_owned());
        }
        let whole = [body, b"}"].concat();
        let content: Self = serde_json::from_slice(&whole).map_err(|error| error.to_string())?;
        if content.version != VERSION {
            return Err(format!(
                "its version is {}, and this program reads {VERSION}",
                content.version
            ));
        }
        let rows = content.rows;
        if content.lines.iter().any(|line| line.power.len() != rows || line.absent.len() != rows) {
            return Err(format!("a channel has not {rows} rows"));
        }
        Ok(content)
    }

    /// Writes the file on each member that has the stream. Returns the files.
    pub fn write(&self, scan: &Scan, stream: &StoredStream) -> Result<Vec<PathBuf>, ContentError> {
        let bytes = self.encode();
        let holdings = scan.inventory.of_stream(stream.number);
        let paths: Vec<PathBuf> = holdings.map(|holding| holding.side(CONTENT_FILE)).collect();
        for path in &paths {
            let failed = |source| ContentError::Write { path: path.clone(), source };
            put_file(path, &bytes).map_err(failed)?;
        }
        Ok(paths)
    }

    /// Reads the first copy that is whole. One of another scan, whose name this one has now, does not count.
    pub fn read(scan: &Scan, stream: &StoredStream) -> Result<Self, ContentError> {
        let mut wrong = None;
        for holding in scan.inventory.of_stream(stream.number) {
            let path = holding.side(CONTENT_FILE);
            match read(&path) {
                Ok(content) if content.scan_uuid == scan.manifest.uuid => return Ok(content),
                Err(ContentError::Read { source, .. })
                    if source.kind() == io::ErrorKind::NotFound => {}
                Ok(_) => {
                    let why = "it is of another scan".to_owned();
                    wrong = Some(ContentError::Damaged { path, why });
                }
                Err(error) => wrong = Some(error),
            }
        }
        let (scan, stream) = (scan.manifest.scan.to_string(), stream.name.clone());
        Err(wrong.unwrap_or(ContentError::Absent { scan, stream }))
    }
}

fn read(path: &Path) -> Result<Content, ContentError> {
    let failed = |source| ContentError::Read { path: path.to_owned(), source };
    let damaged = |why| ContentError::Damaged { path: path.to_owned(), why };
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > MOST_BYTES {
        return Err(damaged(format!("it has {length} bytes, and at most {MOST_BYTES} are read")));
    }
    Content::decode(&regular_file::read(path).map_err(failed)?).map_err(damaged)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two channels in four seconds: full scale, −20 dB, silence, no samples.
    pub(crate) fn content() -> Content {
        let line = |channel| ContentLine {
            thread: 1,
            channel,
            name: format!("1:{channel}"),
            power: match channel {
                0 => vec![Some(100.0), Some(1.0), Some(0.0), None],
                _ => vec![Some(50.0), Some(50.0), Some(0.5), None],
            },
            absent: vec![0.0, 0.0, 0.25, 1.0],
            mean: 0.0,
            deviation: 1.0,
            levels: vec![1, 2],
        };
        Content {
            version: VERSION,
            scan_uuid: Uuid::nil(),
            scan: "r1_a".into(),
            stream: "46220".into(),
            samples: SampleLayout::new("ri8".parse().unwrap(), 2),
            start: Some(Tai(0)),
            full_scale: 100.0,
            rows: 4,
            lines: vec![line(0), line(1)],
            burst_threshold: 4.0,
            burst_count: 1,
            bursts: vec![Burst { thread: 1, channel: 0, begins_s: 0.3, seconds: 0.2, ratio: 10.0 }],
            lost: 0,
        }
    }

    #[test]
    fn a_file_reads_back_and_no_changed_byte_passes() {
        let bytes = content().encode();
        assert_eq!(Content::decode(&bytes), Ok(content()));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(Content::decode(&changed).is_err(), "byte {at}");
            assert!(Content::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn rows_of_a_wrong_number_are_refused() {
        let bytes = Content { rows: 5, ..content() }.encode();
        assert!(Content::decode(&bytes).unwrap_err().contains("5 rows"));
        let later = Content { version: 2, ..content() }.encode();
        assert!(Content::decode(&later).unwrap_err().contains("version"));
    }
}
