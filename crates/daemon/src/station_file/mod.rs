//! The file that describes a station, in TOML. `docs/reference/station-config.md` lists every key.
//!
//! ```toml
//! [store]
//! members = ["/mnt/disk0", "/mnt/disk1"]
//!
//! [[input]]
//! name = "vlbi"
//! endpoints = ["udp://0.0.0.0:46220-46227?format=vdif"]
//! ```
//!
//! A file with mistakes gives all of them at once, each with its line. Paths in it are relative to its directory.

mod exchange;
mod listen;
mod reader;
mod sections;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Serialize;
use toml::de::DeTable;

use self::reader::{Keys, Reader};
use crate::alerts::Alert;
use crate::auth::Role;
use crate::settings::Settings;
use crate::transfers::{QueueOptions, ReceiveOptions};

pub use self::reader::Fault;

/// The largest file that is read, in bytes.
pub const LONGEST_FILE: u64 = 1 << 20;

/// The most tables of one kind.
pub const MOST_TABLES: usize = 200;

/// A station, as its file describes it.
#[derive(Clone, Debug)]
pub struct StationFile {
    /// The file.
    pub path: PathBuf,
    /// The directories of the store.
    pub members: Vec<PathBuf>,
    /// Where it listens.
    pub listen: Listen,
    /// Who may do what, the inputs, and the limits.
    pub settings: Settings,
    /// Schedules that it records.
    pub schedules: Vec<FileSchedule>,
    /// Who is told about problems.
    pub alerts: Vec<Alert>,
    /// The listener for transfers of other sites, if there is one.
    pub receive: Option<ReceiveOptions>,
    /// How the queue of transfers runs.
    pub transfers: QueueOptions,
    /// What is wrong, and does not keep the station from being served.
    pub warnings: Vec<Fault>,
}

/// Where a station listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listen {
    /// Addresses without encryption: only of loopback.
    pub http: Vec<SocketAddr>,
    /// Addresses with TLS.
    pub https: Vec<SocketAddr>,
    /// The certificate, and its key. None: one that signs itself.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The Unix socket.
    pub unix: Option<UnixSocket>,
}

/// A Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixSocket {
    /// Its file.
    pub path: PathBuf,
    /// The permissions of the file.
    pub mode: u32,
}

/// A schedule of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSchedule {
    /// Its name.
    pub name: String,
    /// The file with the scans.
    pub file: PathBuf,
    /// How it is recorded.
    pub options: crate::schedules::Options,
}

/// A file that describes no station.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It cannot be read.
    #[error("{}: reading the description of the station", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It is too large.
    #[error("{}: the description of a station has at most {LONGEST_FILE} bytes", path.display())]
    Long {
        /// The file.
        path: PathBuf,
    },
    /// It has mistakes.
    #[error("{}", shown(path, faults))]
    Faults {
        /// The file.
        path: PathBuf,
        /// All of them, in the order of their lines.
        faults: Vec<Fault>,
    },
}

impl fullbore_core::hint::Hint for Error {
    fn hint(&self) -> Option<std::borrow::Cow<'static, str>> {
        // Each fault has its own advice.
        None
    }
}

/// The faults of a file, each on a line, with its advice below.
pub fn shown(path: &Path, faults: &[Fault]) -> String {
    let one = |fault: &Fault| {
        let advice = fault.advice.as_ref().map(|it| format!("\n  {it}")).unwrap_or_default();
        format!("{}, {fault}{advice}", path.display())
    };
    faults.iter().map(one).collect::<Vec<_>>().join("\n")
}

/// What a right file describes, in numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Members of the store.
    pub members: usize,
    /// Named inputs.
    pub inputs: usize,
    /// Tokens and users.
    pub identities: usize,
    /// Listeners.
    pub listeners: usize,
    /// Schedules.
    pub schedules: usize,
    /// Alerts.
    pub alerts: usize,
}

impl StationFile {
    /// Reads a file, and checks it against this host: members, certificates, schedules and programs that it names.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let read = |source| Error::Read { path: path.to_owned(), source };
        if fs::metadata(path).map_err(read)?.len() > LONGEST_FILE {
            return Err(Error::Long { path: path.to_owned() });
        }
        let text = fs::read_to_string(path).map_err(read)?;
        Self::parse(path, &text).map_err(|faults| Error::Faults { path: path.to_owned(), faults })
    }

    /// Reads a text, as the content of this file.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Vec<Fault>> {
        let reader = Reader::new(text);
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let line = reader.line(error.span().map_or(0, |span| span.start));
            reader.fault(line, error.message().replace('\n', "; "), "");
        }
        // What could not be read as TOML would only cause more faults.
        let file = match errors.is_empty() {
            true => Some(Self::of(path, &reader, document.get_ref())),
            false => None,
        };
        match (reader.faults(), file) {
            (warnings, Some(file)) if warnings.iter().all(|it| it.warning) => {
                Ok(Self { warnings, ..file })
            }
            (faults, _) => Err(faults),
        }
    }

    fn of(path: &Path, reader: &Reader<'_>, document: &DeTable<'_>) -> Self {
        let directory = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let directory = directory.parent().unwrap_or(Path::new("/")).to_owned();
        let keys = Keys::new(reader, "", 1, document);
        let mut settings = Settings::default();
        let members = sections::members(&keys, &directory, &mut settings);
        let listen = listen::listen(&keys, &directory, &mut settings);
        sections::limits(&keys, &mut settings);
        sections::tokens(&keys, &mut settings);
        sections::users(&keys, &mut settings);
        sections::inputs(&keys, &mut settings);
        listen::check(&keys, &listen, &settings);
        let schedules = sections::schedules(&keys, &directory, &settings);
        let alerts = sections::alerts(&keys, &directory);
        let (receive, transfers) = (exchange::receive(&keys), exchange::transfers(&keys));
        keys.finish();
        Self {
            path: path.to_owned(),
            members,
            listen,
            settings,
            schedules,
            alerts,
            receive,
            transfers,
            warnings: Vec::new(),
        }
    }

    /// What it describes, in numbers.
    pub fn summary(&self) -> Summary {
        let Listen { http, https, unix, .. } = &self.listen;
        Summary {
            members: self.members.len(),
            inputs: self.settings.inputs.len(),
            identities: self.settings.tokens.len() + self.settings.users.len(),
            listeners: http.len()
                + https.len()
                + usize::from(unix.is_some())
                + usize::from(self.receive.is_some()),
            schedules: self.schedules.len(),
            alerts: self.alerts.len(),
        }
    }

    /// What differs in another version of the file and needs a restart: the keys.
    pub fn needs_restart(&self, other: &Self) -> Vec<&'static str> {
        let mut keys = Vec::new();
        if self.members != other.members {
            keys.push("[store]");
        }
        let paths = |it: &Listen| (it.http.clone(), it.https.clone(), it.unix.clone());
        if paths(&self.listen) != paths(&other.listen) {
            keys.push("[listen] http, https, unix");
        }
        if self.receive != other.receive {
            keys.push("[receive]");
        }
        if self.transfers != other.transfers {
            keys.push("[transfers]");
        }
        keys
    }
}

/// Reads a role.
fn role(text: &str) -> Result<Role, &'static str> {
    match text {
        "viewer" => Ok(Role::Viewer),
        "operator" => Ok(Role::Operator),
        "admin" => Ok(Role::Admin),
        _ => Err("it is no role"),
    }
}

const ROLES: &str = "the roles are viewer (sees), operator (records), admin (also removes)";

#[cfg(test)]
mod tests;
