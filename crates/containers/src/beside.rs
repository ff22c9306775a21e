//! The JSON file beside a file of samples: the facts that its format has no place for.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use fullbore_core::account::Account;
use fullbore_formats::samples::SampleLayout;
use fullbore_time::Tai;
use serde::Serialize;

use crate::{Ending, Opening, SampleGap, SampleGaps};

/// The facts that are known from the beginning.
#[derive(Clone, Debug)]
pub struct Beside {
    scan: String,
    stream: String,
    /// The samples as they are in the file.
    pub layout: SampleLayout,
    start: Option<Tai>,
}

/// The facts of a finished file.
#[derive(Serialize)]
struct Description<'a> {
    scan: &'a str,
    stream: &'a str,
    samples: u64,
    layout: &'a SampleLayout,
    /// Time of the first sample.
    start: Option<Tai>,
    gaps: &'a [SampleGap],
    /// Gaps after the listed ones.
    gaps_unlisted: u64,
    account: Option<&'a Account>,
    /// What the file lacks, if a write failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    lacks: Option<&'a str>,
}

/// The file beside a file of samples.
pub fn description_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".json");
    name.into()
}

impl Beside {
    /// The facts of an opening.
    pub fn new(opening: &Opening<'_>) -> Self {
        Self {
            scan: opening.scan.to_owned(),
            stream: opening.stream.to_owned(),
            layout: opening.layout.clone(),
            start: opening.start,
        }
    }

    /// Writes the file beside `path`, which has so many samples, and makes it durable. Returns its bytes.
    pub fn write(
        &self,
        path: &Path,
        samples: u64,
        gaps: &SampleGaps,
        ending: &Ending<'_>,
    ) -> io::Result<u64> {
        let description = Description {
            scan: &self.scan,
            stream: &self.stream,
            samples,
            layout: &self.layout,
            start: self.start,
            gaps: &gaps.listed,
            gaps_unlisted: gaps.unlisted,
            account: ending.account,
            lacks: ending.lacks,
        };
        let mut file = File::create_new(description_of(path))?;
        let text = serde_json::to_vec_pretty(&description)?;
        io::Write::write_all(&mut file, &text)?;
        file.sync_all()?;
        Ok(text.len() as u64)
    }
}
