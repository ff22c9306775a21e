//! Options become a configuration, or an error that names the option to change.

use std::path::PathBuf;
use std::time::Duration;

use fullbore_core::affinity::AffinityPolicy;
use fullbore_core::completeness::Planned;
use fullbore_core::name::{Name, ScanName};
use fullbore_core::units::ByteSize;
use fullbore_engine::forward::ForwardTarget;
use fullbore_engine::recorder::{Limit, RecordingConfig, SourceConfig};
use fullbore_engine::sink::{SinkConfig, StoreConfig};
use fullbore_linux::clock::Clock;

use super::target::{Target, scan_of, session_of};
use super::{OptionError, RecordingOptions};
use crate::circular::piece_limit;
use crate::store;

/// The shortest sync interval: more frequent syncs would occupy the disk completely.
const SHORTEST_SYNC: Duration = Duration::from_millis(1);

/// The longest sync interval.
const LONGEST_SYNC: Duration = Duration::from_secs(3600);

/// The most scans of one series: a day with a scan every second.
const MOST_SCANS: u32 = 86_400;

/// The shortest scan of a series: after this time, every stream has continued from one scan to the next.
const SHORTEST_OF_SERIES: Duration = Duration::from_millis(400);

impl RecordingOptions {
    /// The destinations of `--forward`, one for each port.
    fn forward_targets(&self) -> Result<Vec<ForwardTarget>, OptionError> {
        let mut all = Vec::new();
        for text in &self.forward {
            let error = |source| OptionError::Endpoint { text: text.clone(), source };
            all.extend(ForwardTarget::parse(text).map_err(error)?);
        }
        Ok(all)
    }

    /// Checks the options, and turns them into a configuration. Nothing is opened, and nothing is created.
    ///
    /// Options with a [`schedule`](Self::schedule) are for a [`Session`](crate::Session).
    pub fn resolve(&self) -> Result<RecordingConfig, OptionError> {
        self.check()?;
        if self.schedule.is_some() {
            return Err(OptionError::Schedule);
        }
        let targets = self.targets()?;
        let config = self.to_all(&targets)?;
        self.check_limits()?;
        let (mut limit, planned) = self.when()?;
        // The limit applies to each device.
        let devices = targets.iter().find_map(|target| match target {
            Target::Devices(ends) => Some(ends.len() as u64),
            _ => None,
        });
        let times = devices.unwrap_or(1);
        limit.bytes = limit.bytes.map(|bytes| bytes.saturating_mul(times));
        Ok(RecordingConfig {
            start: self.start,
            limit,
            planned,
            buffer: self.buffer,
            capture_threads: self.capture_threads,
            place: self.affinity(),
            priority: self.priority.unwrap_or_default(),
            sync_interval: self.sync,
            clock: self.clock_limits(),
            forward: self.forward_targets()?,
            spectra: self.spectra.clone(),
            ..config
        })
    }

    /// Refuses options that are missing, exclude one another, or would have no effect.
    pub(crate) fn check(&self) -> Result<(), OptionError> {
        self.refuse_conflicts()?;
        self.refuse_missing()?;
        self.refuse_idle()
    }

    fn refuse_conflicts(&self) -> Result<(), OptionError> {
        let given = self.given();
        let is_given = |option: &str| given.contains(&option.trim_start_matches('-'));
        let conflicts: [(&[&'static str], &'static str); 3] = [
            (
                &["--scan", "--scans", "--start", "--duration", "--bytes", "--until", "--to"],
                "--schedule",
            ),
            (
                &[
                    "--schedule",
                    "--scans",
                    "--duration",
                    "--bytes",
                    "--until",
                    "--to",
                    "--keep",
                    "--redundancy",
                ],
                "--circular",
            ),
            (&["--place"], "--cpus"),
        ];
        for (options, with) in conflicts.into_iter().filter(|(_, with)| is_given(with)) {
            if let Some(option) = options.iter().find(|option| is_given(option)) {
                return Err(OptionError::Conflict { option, with });
            }
        }
        Ok(())
    }

    fn refuse_missing(&self) -> Result<(), OptionError> {
        let named = !self.is_into_store() || self.schedule.is_some();
        let missing = [
            ("--session <NAME>", self.session.is_none() && !named),
            ("--scan <NAME>", self.scan.is_none() && !named),
            ("<SOURCE>...", self.source.is_empty()),
        ];
        let options = missing.into_iter().filter(|(_, lacks)| *lacks).map(|(option, _)| option);
        match options.collect::<Vec<_>>() {
            options if options.is_empty() => Ok(()),
            options => Err(OptionError::Missing { options }),
        }
    }

    /// Refuses options of another kind of recording.
    fn refuse_idle(&self) -> Result<(), OptionError> {
        let (schedule, pandas) = (self.schedule.is_some(), self.has_pandas());
        let of_panda = "it is for a PandA, and none is a source";
        let of_device = "it is for a device, and no --to is given";
        let to = !self.to.is_empty();
        let (of_circular, circular) = ("it is for --circular", self.circular.is_some());
        let triggers = !self.trigger.is_empty() || !self.trigger_on.is_empty();
        let of_triggers = "it is for --trigger and --trigger-on";
        let idle = [
            ("--lead", "it is for --schedule", self.lead.is_some() && !schedule),
            ("--station", "it is for --schedule", self.station.is_some() && !schedule),
            ("--arm", of_panda, self.arm && !pandas),
            ("--reconnect", of_panda, self.reconnect.is_some() && !pandas),
            ("--overwrite", of_device, !self.overwrite.is_empty() && !to),
            (
                "--forward",
                "it sends frames on, and only udp:// sources have frames",
                !self.forward.is_empty() && self.source.iter().any(|it| !it.starts_with("udp:")),
            ),
            ("--circular-in", of_circular, self.circular_in.is_some() && !circular),
            ("--trigger", of_circular, !self.trigger.is_empty() && !circular),
            ("--trigger-on", of_circular, !self.trigger_on.is_empty() && !circular),
            ("--before", of_triggers, self.before.is_some() && !triggers),
            ("--after", of_triggers, self.after.is_some() && !triggers),
            (
                "--hold-off",
                "it is for --trigger-on",
                self.hold_off.is_some() && self.trigger_on.is_empty(),
            ),
            (
                "--circular",
                "a PandA's acquisitions end by themselves",
                self.circular.is_some() && pandas,
            ),
            ("--flush", of_device, self.flush && !to),
        ];
        match idle.into_iter().find(|(.., idle)| *idle) {
            Some((option, why, _)) => Err(OptionError::Idle { option, why }),
            None => Ok(()),
        }
    }

    /// A recording into a store.
    pub(super) fn to_store(
        &self,
        members: &[PathBuf],
        sources: Vec<SourceConfig>,
    ) -> Result<RecordingConfig, OptionError> {
        let session = session_of(self.session.as_deref().unwrap_or_default())?;
        let scans = match self.circular {
            Some(_) => vec![self.first_piece()?],
            None => scan_names(&session, self.scan.as_deref().unwrap_or_default(), self.scans())?,
        };
        self.trigger_sources()?;
        self.check_limits()?;
        self.check_series()?;
        self.when()?;
        if members.is_empty() {
            return Err(OptionError::NoStore);
        }
        store::check_to_write(members)?;
        let new_members = self.new_member.iter().filter(|path| members.contains(path));
        let in_memory = self.members_in_memory(members)?;
        let (chunk, pieces, members) = match &in_memory {
            Some((place, roots)) => (self.chunk.or(Some(place.chunk())), place.size.0, &roots[..]),
            None => (self.chunk, 0, members),
        };
        let store = StoreConfig {
            chunk,
            redundancy: self.redundancy,
            new_members: new_members.cloned().collect(),
            ..StoreConfig::new(members.to_vec())
        };
        let config = RecordingConfig::new(sources, SinkConfig::Store(store), scans);
        let further_scans = if self.circular.is_some() { u64::MAX } else { 0 };
        Ok(RecordingConfig { further_scans, pieces_in_memory: pieces, ..config })
    }

    /// The number of scans of a series.
    pub(super) fn scans(&self) -> u32 {
        self.scans.unwrap_or(1)
    }

    /// The cores of `cpus`, else of `place`.
    fn affinity(&self) -> AffinityPolicy {
        match self.cpus.is_empty() {
            true => self.place.clone().unwrap_or_default(),
            false => AffinityPolicy::InTurn(self.cpus.clone()),
        }
    }

    /// Refuses a series whose scans have no end, or are too short.
    fn check_series(&self) -> Result<(), OptionError> {
        if self.scans() == 1 || self.has_pandas() {
            return Ok(());
        }
        match self.duration {
            Some(duration) if duration < SHORTEST_OF_SERIES => {
                Err(OptionError::ShortScans { duration })
            }
            None if self.bytes.is_none() => Err(OptionError::EndlessScans),
            _ if self.until.is_some() => Err(OptionError::UntilOfSeries),
            _ => Ok(()),
        }
    }

    /// Refuses impossible sizes and times.
    fn check_limits(&self) -> Result<(), OptionError> {
        let none = Some(ByteSize(0));
        let zero = [
            ("--bytes", None, self.bytes == none),
            ("--buffer", None, self.buffer == none),
            ("--chunk", None, self.chunk == none),
            ("--duration", None, self.duration == Some(Duration::ZERO)),
            ("--capture-threads", Some("nothing would listen"), self.capture_threads == Some(0)),
        ];
        if let Some((option, why, _)) = zero.into_iter().find(|(.., is_zero)| *is_zero) {
            return Err(OptionError::Zero { option, why });
        }
        match self.sync.filter(|sync| !(SHORTEST_SYNC..=LONGEST_SYNC).contains(sync)) {
            Some(sync) => Err(OptionError::Sync { sync }),
            None => Ok(()),
        }
    }

    /// The end of a scan, and the plan that its streams have to cover.
    fn when(&self) -> Result<(Limit, Planned), OptionError> {
        let mut limit = Limit {
            duration: self.duration,
            bytes: self.bytes.map(|size| size.0),
            until: self.until,
        };
        if let Some(start) = self.start {
            if self.has_pandas() {
                return Err(OptionError::StartOfPanda);
            }
            if start <= Clock::new().now() {
                return Err(OptionError::PastStart { start });
            }
            if self.until.is_some_and(|until| until <= start) {
                return Err(OptionError::UntilBeforeStart);
            }
            // The end of a single scan is a time; consecutive scans have durations.
            if let (Some(duration), 1) = (limit.duration, self.scans()) {
                let end = start.plus_ns(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX));
                limit.until = Some(limit.until.map_or(end, |until| until.min(end)));
                limit.duration = None;
            }
        }
        if let Some(circular) = self.circular {
            (limit.duration, limit.bytes) = piece_limit(circular);
        }
        let planned = match self.has_pandas() {
            true => Planned::default(),
            false => Planned { begin: self.start, end: limit.until },
        };
        Ok((limit, planned))
    }
}

/// One name, or a name for each scan: `no0001`, `no0002`, …
pub(super) fn scan_names(
    session: &Name,
    scan: &str,
    count: u32,
) -> Result<Vec<ScanName>, OptionError> {
    if count == 0 {
        let why = Some("there would be nothing to record");
        return Err(OptionError::Zero { option: "--scans", why });
    }
    if count > MOST_SCANS {
        return Err(OptionError::TooManyScans { scans: count, most: MOST_SCANS });
    }
    let name = |text: &str| Ok(ScanName { session: session.clone(), scan: scan_of(text)? });
    if count == 1 {
        return Ok(vec![name(scan)?]);
    }
    (1..=count).map(|number| name(&format!("{scan}{number:04}"))).collect()
}
