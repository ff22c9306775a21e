//! The target of a recording: a store, devices, a container or a file. It is one choice.

use std::path::Path;

#[cfg(feature = "hdf5")]
use fullbore_core::container::{Compression, Existing, Hdf5Target};
use fullbore_core::device::{DeviceEnd, Flush};
use fullbore_core::endpoint::FileTarget;
use fullbore_core::name::{Name, ScanName};
use fullbore_engine::recorder::{RecordingConfig, SourceConfig};
use fullbore_engine::sink::SinkConfig;
#[cfg(feature = "hdf5")]
use fullbore_engine::sink::container::ContainerConfig;
use fullbore_engine::sink::device::{DeviceConfig, DeviceTarget};
use fullbore_engine::sink::file::FileConfig;
#[cfg(feature = "hdf5")]
use fullbore_hdf5 as hdf5;

#[cfg(feature = "hdf5")]
use super::resolve::scan_names;
use super::sources::of;
use super::{OptionError, RecordingOptions};

/// The default session name in files.
const SESSION: &str = "live";

/// The name of a scan in events, if no device has an index.
const BARE_CHUNKS: &str = "bare_chunks";

/// The kind of a target, with its endpoints.
pub(super) enum Target {
    Store,
    Devices(Vec<String>),
    Container(String),
    File(String),
}

impl RecordingOptions {
    /// The target. A recording has exactly one for now, except that each of several streams may have a device.
    pub(super) fn target(&self) -> Result<Target, OptionError> {
        if self.to.is_empty() {
            return Ok(Target::Store);
        }
        if !self.store.is_empty() {
            return Err(OptionError::StoreAndTarget);
        }
        if self.to.iter().any(|to| DeviceEnd::is_meant(to)) {
            let ends = device_ends(&self.to);
            return match ends.iter().all(|end| DeviceEnd::is_meant(end)) {
                true => Ok(Target::Devices(ends)),
                false => Err(OptionError::DeviceAndOther),
            };
        }
        match self.to.as_slice() {
            [to] if FileTarget::is_meant(to) => Ok(Target::File(to.clone())),
            [to] => Ok(Target::Container(to.clone())),
            _ => Err(OptionError::SeveralTargets),
        }
    }

    /// Refuses options that this kind of target does not support.
    fn refuse_options(&self, target: &'static str, syncs: bool) -> Result<(), OptionError> {
        let given = [
            ("--sync", self.sync.is_some() && syncs),
            ("--overwrite", !self.overwrite.is_empty()),
            ("--flush", self.flush),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(OptionError::OfOtherTarget { option, target }),
            None => Ok(()),
        }
    }

    fn refuse_series(&self, target: &'static str) -> Result<(), OptionError> {
        match self.scans() {
            1 => Ok(()),
            scans => Err(OptionError::OneScan { scans, target }),
        }
    }

    /// A recording of one stream into a plain file, or to standard output.
    pub(super) fn to_file(&self, text: &str) -> Result<RecordingConfig, OptionError> {
        self.refuse_options("a file", false)?;
        let target = FileTarget::parse(text).map_err(of(text))?;
        let (session, scan) = match &target {
            FileTarget::Standard => self.names(Path::new("stdout"))?,
            FileTarget::File { path, .. } => self.names(path)?,
        };
        let scan = ScanName { session, scan: scan_of(&scan)? };
        let sources = self.sources()?;
        self.refuse_series("a file takes one scan")?;
        Ok(RecordingConfig::new(sources, SinkConfig::File(FileConfig { target }), vec![scan]))
    }

    #[cfg(not(feature = "hdf5"))]
    pub(super) fn to_container(&self, _: &str) -> Result<RecordingConfig, OptionError> {
        Err(OptionError::WithoutHdf5)
    }

    /// A recording into a container.
    #[cfg(feature = "hdf5")]
    pub(super) fn to_container(&self, text: &str) -> Result<RecordingConfig, OptionError> {
        self.refuse_options("a container", true)?;
        let target = Hdf5Target::parse(text).map_err(OptionError::Container)?;
        let sources = self.sources()?;
        if !self.has_pandas() {
            self.refuse_series("a container takes one scan, except of PandAs")?;
        }
        let (session, scan) = self.names(&target.path)?;
        let scans = scan_names(&session, &scan, self.scans())?;
        Ok(container(sources, &target, scans, 0))
    }

    /// A recording of streams onto devices, one onto each.
    pub(super) fn to_devices(&self, to: &[String]) -> Result<RecordingConfig, OptionError> {
        if self.scans() != 1 {
            return Err(OptionError::OneScanOfDevice);
        }
        let sources = self.sources_of_devices()?;
        let devices = self.devices(to)?;
        let scan = devices.iter().find_map(|device| device.scan.clone());
        let scan = scan.unwrap_or_else(|| BARE_CHUNKS.parse().expect("it is a name"));
        let devices = DeviceConfig { devices };
        Ok(RecordingConfig::new(sources, SinkConfig::Device(devices), vec![scan]))
    }

    /// The sources. Those with equal names are numbered, and the rest of each is dropped as requested.
    fn sources_of_devices(&self) -> Result<Vec<SourceConfig>, OptionError> {
        let mut sources = self.sources()?;
        let names: Vec<Name> = sources.iter().map(|source| source.name().clone()).collect();
        for (number, source) in sources.iter_mut().enumerate() {
            let SourceConfig::Bytes(stream) = source else { continue };
            stream.flush = if self.flush { Flush::Always } else { Flush::AfterAbort };
            let alike = |upto: usize| names[..upto].iter().filter(|it| **it == stream.name).count();
            if alike(names.len()) > 1 {
                let name = format!("{}{}", stream.name, alike(number) + 1);
                let option = "the name of a stream";
                stream.name =
                    name.parse().map_err(|source| OptionError::Name { option, source })?;
            }
        }
        let drained = |source: &SourceConfig| matches!(source, SourceConfig::Bytes(_));
        match self.flush && !sources.iter().any(drained) {
            true => Err(OptionError::NothingToFlush),
            false => Ok(sources),
        }
    }

    /// The devices, each with its scan and the permission to overwrite it.
    fn devices(&self, to: &[String]) -> Result<Vec<DeviceTarget>, OptionError> {
        let parse = |text: &String| DeviceEnd::parse(text).map_err(of(text));
        let ends = to.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        // The guard explains a name that is not exactly that of the only device.
        let is_meant = |path: &Path| ends.len() == 1 || ends.iter().any(|end| end.path == path);
        if let Some(path) = self.overwrite.iter().find(|path| !is_meant(path)) {
            return Err(OptionError::NotOverwritten { path: path.clone() });
        }
        let device = |end: DeviceEnd| {
            let named = self.overwrite.iter().find(|named| **named == end.path);
            let overwrite = named.or(self.overwrite.first().filter(|_| to.len() == 1)).cloned();
            let scan = self.scan_of_device(end.scan.as_ref())?;
            Ok(DeviceTarget { end, scan, overwrite })
        };
        ends.into_iter().map(device).collect()
    }

    /// The scan's name, from the options or the endpoint; `None` for bare chunks.
    fn scan_of_device(&self, named: Option<&ScanName>) -> Result<Option<ScanName>, OptionError> {
        let given = match (given(&self.session), given(&self.scan)) {
            (None, None) => return Ok(named.cloned()),
            (Some(session), Some(scan)) => {
                ScanName { session: session_of(session)?, scan: scan_of(scan)? }
            }
            _ => return Err(OptionError::HalfAName),
        };
        match named.is_none_or(|named| *named == given) {
            true => Ok(Some(given)),
            false => Err(OptionError::TwoNames { given }),
        }
    }

    /// The given names of session and scan, else `live` and the name of the file.
    fn names(&self, path: &Path) -> Result<(Name, String), OptionError> {
        let session = session_of(given(&self.session).unwrap_or(SESSION))?;
        Ok((session, given(&self.scan).map_or_else(|| name_of_file(path), str::to_owned)))
    }
}

/// A name, unless it is empty.
fn given(name: &Option<String>) -> Option<&str> {
    name.as_deref().filter(|name| !name.is_empty())
}

pub(super) fn session_of(text: &str) -> Result<Name, OptionError> {
    Name::session(text).map_err(|source| OptionError::Name { option: "--session", source })
}

pub(super) fn scan_of(text: &str) -> Result<Name, OptionError> {
    text.parse().map_err(|source| OptionError::Name { option: "--scan", source })
}

/// The scan of a recording into a file that names none: `live`, and the name of the file.
pub fn scan_of_file(path: &Path) -> ScanName {
    let name = |text: &str| text.parse().expect("it is a name");
    let scan = name_of_file(path).parse().unwrap_or_else(|_| name("scan"));
    ScanName { session: name(SESSION), scan }
}

/// The letters and digits of a file's name.
fn name_of_file(path: &Path) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
    // The number of a template is not a part of the name.
    let plain = stem.chars().take_while(|&c| c != '%');
    let letters: String = plain.filter(char::is_ascii_alphanumeric).take(32).collect();
    if letters.is_empty() { "scan".to_owned() } else { letters }
}

/// The endpoints of several devices, each given separately or in a list: device:A,device:B. A comma may also be part of
/// a path.
pub fn device_ends(texts: &[String]) -> Vec<String> {
    let mut ends: Vec<String> = Vec::new();
    for text in texts {
        let mut open = false;
        for part in text.split(',') {
            match ends.last_mut() {
                Some(last) if open && !DeviceEnd::is_meant(part) => {
                    last.push(',');
                    last.push_str(part);
                }
                _ => ends.push(part.trim_start().to_owned()),
            }
            open = true;
        }
    }
    ends
}

/// A recording into a container. `further_scans` follow the listed ones.
#[cfg(feature = "hdf5")]
pub fn container(
    sources: Vec<SourceConfig>,
    target: &Hdf5Target,
    scans: Vec<ScanName>,
    further_scans: u64,
) -> RecordingConfig {
    let container = ContainerConfig {
        template: target.path.clone(),
        options: container_options(target),
        streams: sources.iter().map(|source| source.name().clone()).collect(),
        single: matches!(sources.as_slice(), [only] if only.is_known()),
        has_rows: sources.iter().any(|source| !matches!(source, SourceConfig::Panda(_))),
        scans: (scans.len() as u64).checked_add(further_scans),
        alternate_path: true,
    };
    let config = RecordingConfig::new(sources, SinkConfig::Container(container), scans);
    RecordingConfig { further_scans, ..config }
}

/// The options of the files, from the endpoint.
#[cfg(feature = "hdf5")]
pub fn container_options(target: &Hdf5Target) -> hdf5::Options {
    hdf5::Options {
        form: if target.scaled { hdf5::Form::Scaled } else { hdf5::Form::Native },
        existing: match target.existing {
            Existing::Refuse => hdf5::Existing::Refuse,
            Existing::Overwrite => hdf5::Existing::Overwrite,
            Existing::Append => hdf5::Existing::Append,
        },
        compression: target.compression.map(|compression| match compression {
            Compression::None => hdf5::Compression::None,
            Compression::Gzip(level) => hdf5::Compression::Gzip(level),
            Compression::Bitshuffle => hdf5::Compression::BitshuffleLz4,
        }),
        flush: target.flush,
        rows_per_second: target.rate,
        live: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_is_named_by_options_or_endpoint_and_by_both_only_if_they_agree() {
        let scan_name = |session: &str, scan: &str, named: Option<&ScanName>| {
            let [session, scan] = [session, scan].map(|text| Some(text.to_owned()));
            let options = RecordingOptions { session, scan, ..RecordingOptions::default() };
            options.scan_of_device(named)
        };
        let named: ScanName = "r1_a".parse().unwrap();
        assert_eq!(scan_name("", "", None).unwrap(), None);
        assert_eq!(scan_name("", "", Some(&named)).unwrap(), Some(named.clone()));
        assert_eq!(scan_name("r1", "a", None).unwrap(), Some(named.clone()));
        assert_eq!(scan_name("r1", "a", Some(&named)).unwrap(), Some(named.clone()));
        assert!(scan_name("r1", "b", Some(&named)).is_err());
        assert!(scan_name("r1", "", None).is_err() && scan_name("r_1", "a", None).is_err());
    }

    #[test]
    fn a_file_gives_its_name_to_the_scan() {
        let scan = |path: &str| scan_of_file(Path::new(path)).to_string();
        assert_eq!(scan("/data/run-7_%d.h5"), "live_run7");
        assert_eq!(scan("%d.h5"), "live_scan");
        assert_eq!(scan("ds.h5"), "live_scan", "a name that is not allowed");
    }
}
