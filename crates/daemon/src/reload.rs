//! SIGHUP: the file of the station is read again. What can change while the daemon serves does; the rest is named.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use fullbore_core::hint::with_causes;
use serde::Serialize;

use crate::alerts::Alerts;
use crate::bound::source_of;
use crate::http::Station;
use crate::net::Entrance;
use crate::net::tls::Certificate;
use crate::schedules::Schedules;
use crate::settings::Current;
use crate::station_file::StationFile;

/// What a reload did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reloaded {
    /// True if the file was taken. A file with mistakes changes nothing.
    pub taken: bool,
    /// Keys that changed, and count only after a restart.
    pub needs_restart: Vec<&'static str>,
    /// What could not be done.
    pub problems: Vec<String>,
}

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.taken { "read the file again" } else { "the file changes nothing" })?;
        if !self.needs_restart.is_empty() {
            write!(f, "; these count after a restart: {}", self.needs_restart.join("; "))?;
        }
        self.problems.iter().try_for_each(|problem| write!(f, "\n{problem}"))
    }
}

/// What a reload changes.
pub(crate) struct Reloading {
    /// The file, as it was when the daemon started.
    pub(crate) file: Option<StationFile>,
    pub(crate) settings: Current,
    pub(crate) entrance: Entrance,
    /// The certificate, and the directory of one that signs itself.
    pub(crate) certificate: Option<(Arc<Certificate>, PathBuf)>,
    pub(crate) alerts: Alerts,
    pub(crate) schedules: Schedules,
    pub(crate) station: Arc<Station>,
}

impl Reloading {
    /// Reads the file again.
    pub(crate) fn reload(&self) -> Reloaded {
        let Some(before) = &self.file else {
            let problem = "there is no file: the daemon was started without --config".to_owned();
            return Reloaded { problems: vec![problem], ..Reloaded::default() };
        };
        let file = match StationFile::read(&before.path) {
            Ok(file) => file,
            Err(error) => {
                return Reloaded { problems: vec![with_causes(&error)], ..Reloaded::default() };
            }
        };
        let mut problems: Vec<String> = file.warnings.iter().map(ToString::to_string).collect();
        self.settings.set(file.settings.clone());
        self.entrance.limit(file.settings.limits, file.settings.patience);
        if let Err(error) = self.station.sessions.keep_only(&file.settings.tokens) {
            problems.push(format!("ended sessions are not noted: {error}"));
        }
        if let Some((certificate, state)) = &self.certificate {
            let source = source_of(&file.listen, &file.settings.names, state);
            if let Err(error) = certificate.reload(&source) {
                problems.push(with_causes(&error));
            }
        }
        if let Err(error) = self.alerts.set(&file.alerts) {
            problems.push(format!("alerts: {error}"));
        }
        problems.extend(self.schedules.take_over(&file.schedules));
        Reloaded { taken: true, needs_restart: before.needs_restart(&file), problems }
    }
}
