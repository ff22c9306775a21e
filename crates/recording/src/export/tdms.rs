//! Converts TDMS files: into a whole file with few segments, or a group of channels into any file of samples.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fullbore_containers::tdms::{GroupReader, GroupSamples, TdmsFile, TdmsLayout, defragment};
use fullbore_containers::{
    Ending, Opening, Origin, Recoder, SampleError, SampleFormat, SampleType,
};
use fullbore_core::name::Name;
use fullbore_formats::samples::SampleLayout;
use fullbore_hdf5 as hdf5;
use serde::Serialize;

use super::{ExportError, ExportEvent, ExportEventHandler};
use crate::outcome::Outcome;

/// A conversion of a TDMS file.
#[derive(Clone, Debug)]
pub struct TdmsExport {
    /// The file.
    pub from: PathBuf,
    /// The only group to convert. `None`: all groups.
    pub group: Option<String>,
    /// The file that is made. With several groups, each gets a file beside it.
    pub path: PathBuf,
    /// The format of the files.
    pub format: SampleFormat,
    /// The type of the values. `None`: the one that the format prefers.
    pub values: Option<SampleType>,
}

/// The result of a conversion.
#[derive(Clone, Debug, Serialize)]
pub struct ConvertedTdms {
    /// The file that was converted.
    pub from: PathBuf,
    /// Segments of this file.
    pub segments: usize,
    /// True if it was never closed, or is shorter than it says.
    pub was_cut: bool,
    /// The files that were made.
    pub files: Vec<TdmsPart>,
    /// The content that they lack, a sentence each.
    pub lacks: Vec<String>,
    /// Seconds that it took.
    pub seconds: f64,
}

/// A file that was made.
#[derive(Clone, Debug, Serialize)]
pub struct TdmsPart {
    /// The file.
    pub file: PathBuf,
    /// The group that it has; `None`: all.
    pub group: Option<String>,
    /// Channels with values.
    pub channels: usize,
    /// Values of all channels.
    pub values: u64,
    /// Bytes of the file, and of those beside it.
    pub bytes: u64,
}

impl ConvertedTdms {
    /// True of a conversion that lacks nothing, of a file that was closed.
    pub fn outcome(&self) -> Outcome {
        Outcome::of(self.lacks.is_empty() && !self.was_cut)
    }
}

impl TdmsExport {
    /// True if a conversion from this path is one of TDMS.
    pub fn is_meant(from: &Path) -> bool {
        TdmsFile::is_one(from)
    }

    /// Converts the file.
    pub fn run(&self, tell: &mut ExportEventHandler<'_>) -> Result<ConvertedTdms, ExportError> {
        let begun = Instant::now();
        hdf5::check_place(&self.path)?;
        let file = TdmsFile::open(&self.from)?;
        let mut made = ConvertedTdms {
            from: self.from.clone(),
            segments: file.contents().segment_count(),
            was_cut: file.contents().is_cut(),
            files: Vec::new(),
            lacks: Vec::new(),
            seconds: 0.0,
        };
        let is_copy = self.group.is_none() && self.values.is_none();
        match self.format {
            SampleFormat::Tdms(TdmsLayout::Contiguous) if is_copy => {
                self.copy(&file, &mut made, tell)?;
            }
            _ => self.export_groups(&file, &mut made, tell)?,
        }
        made.seconds = begun.elapsed().as_secs_f64();
        Ok(made)
    }

    fn refuse_existing(&self, paths: &[PathBuf]) -> Result<(), ExportError> {
        let taken = paths.iter().flat_map(|path| self.format.files(path));
        match taken.into_iter().find(|path| hdf5::is_there(path)) {
            Some(path) => Err(hdf5::Error::Exists { path }.into()),
            None => Ok(()),
        }
    }

    /// Puts all channels in order.
    fn copy(
        &self,
        file: &TdmsFile,
        made: &mut ConvertedTdms,
        tell: &mut ExportEventHandler<'_>,
    ) -> Result<(), ExportError> {
        self.refuse_existing(std::slice::from_ref(&self.path))?;
        tell(ExportEvent::Begun { bytes: file.contents().value_bytes() });
        let copy = defragment(file, &self.path, &mut |bytes| tell(ExportEvent::Written { bytes }))?;
        let lack = |it: &String| format!("{it} is text or has several scalers, and is left out");
        made.lacks.extend(copy.left_out.iter().map(lack));
        made.files.push(TdmsPart {
            file: self.path.clone(),
            group: None,
            channels: copy.channels,
            values: copy.values,
            bytes: copy.bytes,
        });
        Ok(())
    }

    fn export_groups(
        &self,
        file: &TdmsFile,
        made: &mut ConvertedTdms,
        tell: &mut ExportEventHandler<'_>,
    ) -> Result<(), ExportError> {
        let groups = match &self.group {
            Some(group) => vec![group.as_str()],
            None => file.contents().groups(),
        };
        let mut parts = Vec::new();
        for group in &groups {
            let path = match groups.len() {
                1 => self.path.clone(),
                _ => {
                    let name = group.parse::<Name>().map_err(|_| {
                        let why = format!(
                            "no file can be named for group `{group}`: choose it with ?group="
                        );
                        file.refuse(why)
                    })?;
                    hdf5::beside(&self.path, name.as_str())
                }
            };
            parts.push((path, GroupSamples::of(file, Some(group))?));
        }
        if parts.is_empty() {
            return Err(file.refuse("no channel has values").into());
        }
        let paths: Vec<PathBuf> = parts.iter().map(|(path, _)| path.clone()).collect();
        self.refuse_existing(&paths)?;
        let bytes = |it: &GroupSamples| it.samples.saturating_mul(it.layout.sample_bits() / 8);
        tell(ExportEvent::Begun { bytes: parts.iter().map(|(_, it)| bytes(it)).sum() });
        for (number, (path, samples)) in parts.iter().enumerate() {
            let part = self.export(file, samples, path, tell).inspect_err(|_| {
                paths[..=number].iter().for_each(|path| self.format.remove(path));
            })?;
            made.files.push(part);
            made.lacks.extend(samples.lacks.iter().cloned());
        }
        Ok(())
    }

    /// Writes the samples of a group.
    fn export(
        &self,
        file: &TdmsFile,
        samples: &GroupSamples,
        path: &Path,
        tell: &mut ExportEventHandler<'_>,
    ) -> Result<TdmsPart, ExportError> {
        let failed = |source: io::Error| SampleError::Write { path: path.to_owned(), source };
        let from = samples.layout.encoding;
        let encoding = self.format.encoding(from, self.values).map_err(SampleError::from)?;
        let layout = SampleLayout { encoding, ..samples.layout.clone() };
        let mut recoder = Recoder::new(from, encoding).map_err(SampleError::from)?;
        let scan = self.from.file_stem().unwrap_or_default().to_string_lossy();
        let opening = Opening {
            scan: &scan,
            stream: &samples.group,
            layout: &layout,
            start: samples.start,
            origin: Origin { source: &self.from.to_string_lossy(), ..Origin::default() },
        };
        let mut writer = self.format.create(path, &opening).map_err(failed)?;
        let mut reader = GroupReader::new(file, samples);
        while let Some(rows) = reader.next_rows()? {
            recoder.recode(rows, |samples| writer.append(samples)).map_err(failed)?;
            tell(ExportEvent::Written { bytes: rows.len() as u64 });
        }
        let finished = writer.finish(&Ending::default()).map_err(failed)?;
        Ok(TdmsPart {
            file: path.to_owned(),
            group: Some(samples.group.clone()),
            channels: layout.channels as usize,
            values: finished.samples * u64::from(layout.channels),
            bytes: finished.bytes,
        })
    }
}
