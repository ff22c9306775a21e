//! The targets of a recording: stores, containers, files and devices. Each becomes a sink.

use std::path::{Path, PathBuf};

#[cfg(feature = "hdf5")]
use fullbore_containers::{Framing, SampleTarget};
#[cfg(feature = "hdf5")]
use fullbore_core::container::{Compression, Existing, Hdf5Target, Nexus};
use fullbore_core::device::{DeviceEnd, Flush};
use fullbore_core::endpoint::FileTarget;
#[cfg(feature = "hdf5")]
use fullbore_core::endpoint::samples_of_source;
#[cfg(feature = "hdf5")]
use fullbore_core::manifest::Fill;
use fullbore_core::name::{Name, ScanName};
use fullbore_engine::recorder::{RecordingConfig, SourceConfig};
use fullbore_engine::sink::SinkConfig;
#[cfg(feature = "hdf5")]
use fullbore_engine::sink::container::{ContainerConfig, ContainerFormat};
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

/// The prefix of a store among other targets.
const STORE: &str = "store:";

/// A target, with what names it.
pub(super) enum Target {
    /// A store with these members.
    Store(Vec<PathBuf>),
    /// A plain file, or standard output.
    File(String),
    /// A container.
    Container(String),
    /// Devices, one for each stream.
    Devices(Vec<String>),
}

impl Target {
    /// The target that `--to` names.
    fn of(text: &str) -> Result<Self, OptionError> {
        Ok(match text {
            _ if is_store(text) => Self::Store(members_of(text)?),
            _ if FileTarget::is_meant(text) => Self::File(text.to_owned()),
            _ => Self::Container(text.to_owned()),
        })
    }

    /// Its kind, in messages.
    fn kind(&self) -> &'static str {
        match self {
            Self::Store(_) => "a store",
            Self::File(_) => "a file",
            Self::Container(_) => "a container",
            Self::Devices(_) => "a device",
        }
    }

    pub(super) fn is_store(&self) -> bool {
        matches!(self, Self::Store(_))
    }

    fn is_device(&self) -> bool {
        matches!(self, Self::Devices(_))
    }
}

fn is_store(text: &str) -> bool {
    text.trim_start().get(..STORE.len()).is_some_and(|it| it.eq_ignore_ascii_case(STORE))
}

/// The directories of `store:DIR,DIR`.
fn members_of(text: &str) -> Result<Vec<PathBuf>, OptionError> {
    let listed = text.trim_start()[STORE.len()..].split(',').filter(|it| !it.is_empty());
    let members: Vec<PathBuf> = listed.map(PathBuf::from).collect();
    match members.is_empty() {
        true => Err(OptionError::NoMember { text: text.to_owned() }),
        false => Ok(members),
    }
}

impl RecordingOptions {
    /// True if a store is a target, or nothing else is.
    pub(super) fn is_into_store(&self) -> bool {
        self.to.is_empty() || !self.store.is_empty() || self.to.iter().any(|to| is_store(to))
    }

    /// The targets in the order of their sinks: the store, then the others as they are given, then all devices as one
    /// target.
    pub(super) fn targets(&self) -> Result<Vec<Target>, OptionError> {
        let mut targets = Vec::new();
        if self.to.is_empty() || !self.store.is_empty() {
            targets.push(Target::Store(self.store.clone()));
        }
        let (devices, others): (Vec<String>, Vec<String>) =
            self.to.iter().cloned().partition(|to| DeviceEnd::is_meant(to));
        for text in others {
            targets.push(Target::of(&text)?);
        }
        if !devices.is_empty() {
            targets.push(Target::Devices(device_ends(&devices)));
        }
        Ok(targets)
    }

    /// A recording into all of these targets. A block goes from one to the next.
    pub(super) fn to_all(&self, targets: &[Target]) -> Result<RecordingConfig, OptionError> {
        self.refuse_unsupported(targets)?;
        self.refuse_new_members(targets)?;
        let sources = match targets.iter().any(Target::is_device) {
            true => self.sources_of_devices()?,
            false => self.sources()?,
        };
        let [first, others @ ..] = targets else { return Err(OptionError::NoStore) };
        let mut all = self.to_one(first, sources.clone())?;
        for other in others {
            let config = self.to_one(other, sources.clone())?;
            if names_its_scan(&config) {
                all.scans = config.scans;
            }
            all.sinks.extend(config.sinks);
        }
        Ok(all)
    }

    fn to_one(
        &self,
        target: &Target,
        sources: Vec<SourceConfig>,
    ) -> Result<RecordingConfig, OptionError> {
        match target {
            Target::Store(members) => self.to_store(members, sources),
            Target::File(to) => self.to_file(to, sources),
            Target::Container(to) => self.to_container(to, sources),
            Target::Devices(ends) => self.to_devices(ends, sources),
        }
    }

    /// Refuses options that no target supports.
    fn refuse_unsupported(&self, targets: &[Target]) -> Result<(), OptionError> {
        let (of_device, of_store) = (
            "it is for a device, and the recording goes onto none",
            "it is for a store, and the recording goes into none",
        );
        let device = targets.iter().any(Target::is_device);
        let stores = targets.iter().filter(|target| target.is_store()).count();
        let syncs = targets.iter().any(|target| !matches!(target, Target::Container(_)));
        let given = [
            ("--sync", "no target is synced", self.sync.is_some() && !syncs),
            ("--overwrite", of_device, !self.overwrite.is_empty() && !device),
            ("--flush", of_device, self.flush && !device),
            ("--chunk", of_store, self.chunk.is_some() && stores == 0),
            ("--keep", of_store, self.keep.is_some() && stores == 0),
            ("--redundancy", of_store, self.redundancy.is_some() && stores == 0),
            ("--new-member", of_store, !self.new_member.is_empty() && stores == 0),
            (
                "--keep",
                "it removes scans of one store, and the recording goes into several",
                self.keep.is_some() && stores > 1,
            ),
        ];
        let Some((option, why, _)) = given.into_iter().find(|(.., given)| *given) else {
            return Ok(());
        };
        match targets {
            [target] if !target.is_store() && why != of_store => {
                Err(OptionError::OfOtherTarget { option, target: target.kind() })
            }
            _ => Err(OptionError::Idle { option, why }),
        }
    }

    /// Refuses new members that no store has.
    fn refuse_new_members(&self, targets: &[Target]) -> Result<(), OptionError> {
        let is_member = |path: &PathBuf| {
            targets
                .iter()
                .any(|target| matches!(target, Target::Store(members) if members.contains(path)))
        };
        match self.new_member.iter().find(|path| !is_member(path)) {
            Some(path) => Err(OptionError::NotAMember { path: path.clone() }),
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
    fn to_file(
        &self,
        text: &str,
        sources: Vec<SourceConfig>,
    ) -> Result<RecordingConfig, OptionError> {
        let target = FileTarget::parse(text).map_err(of(text))?;
        let (session, scan) = match &target {
            FileTarget::Standard => self.names(Path::new("stdout"))?,
            FileTarget::File { path, .. } => self.names(path)?,
        };
        let scan = ScanName { session, scan: scan_of(&scan)? };
        self.refuse_series("a file takes one scan")?;
        Ok(RecordingConfig::new(sources, SinkConfig::File(FileConfig { target }), vec![scan]))
    }

    #[cfg(not(feature = "hdf5"))]
    fn to_container(&self, _: &str, _: Vec<SourceConfig>) -> Result<RecordingConfig, OptionError> {
        Err(OptionError::WithoutHdf5)
    }

    /// A recording into a container.
    #[cfg(feature = "hdf5")]
    fn to_container(
        &self,
        text: &str,
        sources: Vec<SourceConfig>,
    ) -> Result<RecordingConfig, OptionError> {
        if let Some(target) = SampleTarget::parse(text) {
            return self.to_samples(text, target.map_err(of(text))?, sources);
        }
        let target = Hdf5Target::parse(text).map_err(OptionError::Container)?;
        if !self.has_pandas() {
            self.refuse_series("a container takes one scan, except of PandAs")?;
        }
        let (session, scan) = self.names(&target.path)?;
        let scans = scan_names(&session, &scan, self.scans())?;
        Ok(container(sources, &target, scans, 0))
    }

    /// A recording into files of samples, one for each stream.
    #[cfg(feature = "hdf5")]
    fn to_samples(
        &self,
        text: &str,
        target: SampleTarget,
        sources: Vec<SourceConfig>,
    ) -> Result<RecordingConfig, OptionError> {
        self.refuse_series("a file of samples takes one scan")?;
        for source in &sources {
            let (format, samples) = (source.format(), samples_of_source(&source.endpoint()));
            let framing = Framing {
                format: &format,
                frame_bytes: 0,
                has_places: source.fill() != Fill::Omit,
                samples: samples.as_ref(),
                context: &[],
                first: None,
            };
            framing.check(&target.options).map_err(|error| OptionError::Samples {
                text: text.to_owned(),
                stream: source.name().clone(),
                source: error,
            })?;
        }
        let (session, scan) = self.names(&target.path)?;
        let scans = scan_names(&session, &scan, 1)?;
        let format = ContainerFormat::Samples { options: target.options, flush: target.flush };
        Ok(recording_into(sources, target.path, format, scans, 0))
    }

    /// A recording of streams onto devices, one onto each.
    fn to_devices(
        &self,
        to: &[String],
        sources: Vec<SourceConfig>,
    ) -> Result<RecordingConfig, OptionError> {
        if self.scans() != 1 {
            return Err(OptionError::OneScanOfDevice);
        }
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

/// True if the endpoint of a device names the scan.
fn names_its_scan(config: &RecordingConfig) -> bool {
    let named = |sink: &SinkConfig| match sink {
        SinkConfig::Device(to) => to.devices.iter().any(|device| device.scan.is_some()),
        _ => false,
    };
    config.sinks.iter().any(named)
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
    let format = ContainerFormat::Hdf5(container_options(target));
    recording_into(sources, target.path.clone(), format, scans, further_scans)
}

#[cfg(feature = "hdf5")]
fn recording_into(
    sources: Vec<SourceConfig>,
    template: PathBuf,
    format: ContainerFormat,
    scans: Vec<ScanName>,
    further_scans: u64,
) -> RecordingConfig {
    let container = ContainerConfig {
        template,
        format,
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
        nexus: match target.nexus {
            Nexus::Data => hdf5::Nexus::Data,
            Nexus::AreaDetector => hdf5::Nexus::AreaDetector,
            Nexus::Off => hdf5::Nexus::Off,
        },
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
