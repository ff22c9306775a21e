//! Changes of settings, and the way back.
//!
//! Before the first change, the undo file gets the value of each setting as it was. A second fix keeps the older values
//! of the file. Undo puts them back in the reverse order, and removes the file only if all of them are back.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fullbore_core::hint::Hint;
use fullbore_linux::sys::ethtool::{Cards, Coalescing};
use fullbore_survey::bench::history;
use serde::{Deserialize, Serialize};

/// The largest undo file that is read.
const LARGEST_FILE_BYTES: u64 = 4 << 20;

/// The longest value of a setting.
const LONGEST_VALUE: usize = 256;

/// A setting with a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Setting {
    /// A file of `/proc/sys` or `/sys`.
    File {
        /// The path.
        path: String,
        /// The text.
        value: String,
    },
    /// Receive descriptors of a card.
    RxRing {
        /// The card.
        card: String,
        /// The number.
        descriptors: u32,
    },
    /// GRO of a card.
    Gro {
        /// The card.
        card: String,
        /// True: on.
        on: bool,
    },
    /// LRO of a card.
    Lro {
        /// The card.
        card: String,
        /// True: on.
        on: bool,
    },
    /// Interrupt coalescing of a card.
    Coalescing {
        /// The card.
        card: String,
        /// Microseconds.
        rx_usecs: u32,
        /// True if the driver changes them.
        adaptive: bool,
    },
}

impl Setting {
    /// A number in a file below `/proc`.
    pub fn proc(path: &str, value: impl ToString) -> Self {
        Self::File { path: format!("/proc/{path}"), value: value.to_string() }
    }

    /// A text in a file below `/sys`.
    pub fn sys(path: &str, value: impl ToString) -> Self {
        Self::File { path: format!("/sys/{path}"), value: value.to_string() }
    }

    /// The command for a shell that does the same.
    pub fn command(&self) -> String {
        let switch = |on: bool| if on { "on" } else { "off" };
        match self {
            Self::File { path, value } => match path.strip_prefix("/proc/sys/") {
                Some(name) if !value.contains(char::is_whitespace) => {
                    format!("sysctl -w {}={value}", name.replace('/', "."))
                }
                _ => format!("echo {value} > {path}"),
            },
            Self::RxRing { card, descriptors } => format!("ethtool -G {card} rx {descriptors}"),
            Self::Gro { card, on } => format!("ethtool -K {card} gro {}", switch(*on)),
            Self::Lro { card, on } => format!("ethtool -K {card} lro {}", switch(*on)),
            Self::Coalescing { card, rx_usecs, adaptive } => {
                format!("ethtool -C {card} adaptive-rx {} rx-usecs {rx_usecs}", switch(*adaptive))
            }
        }
    }

    /// True if both set the same thing, to any value.
    fn is_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File { path, .. }, Self::File { path: other, .. }) => path == other,
            (Self::RxRing { card, .. }, Self::RxRing { card: other, .. })
            | (Self::Gro { card, .. }, Self::Gro { card: other, .. })
            | (Self::Lro { card, .. }, Self::Lro { card: other, .. })
            | (Self::Coalescing { card, .. }, Self::Coalescing { card: other, .. }) => {
                card == other
            }
            _ => false,
        }
    }

    /// Refuses files that are no settings of the kernel: an undo file is written by hand at worst.
    pub fn checked(&self) -> Result<(), Error> {
        let Self::File { path, value } = self else { return Ok(()) };
        let valid = is_setting(path) && value.len() <= LONGEST_VALUE;
        match valid {
            true => Ok(()),
            false => Err(Error::NoSetting { path: path.clone() }),
        }
    }

    /// The same setting with its value of now.
    fn now(&self, cards: &Cards) -> Result<Self, Error> {
        self.checked()?;
        let cannot = |source| Error::Read { setting: self.command(), source };
        Ok(match self {
            Self::File { path, .. } => {
                let text = fs::read_to_string(path).map_err(cannot)?;
                // Files of choices show the chosen one in brackets.
                let text = text.trim_end();
                let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
                let value = chosen.map_or(text, |(chosen, _)| chosen).to_owned();
                Self::File { path: path.clone(), value }
            }
            Self::RxRing { card, .. } => {
                let descriptors = cards.ring(card).map_err(cannot)?.now;
                Self::RxRing { card: card.clone(), descriptors }
            }
            Self::Gro { card, .. } => {
                Self::Gro { card: card.clone(), on: cards.gro(card).map_err(cannot)? }
            }
            Self::Lro { card, .. } => {
                Self::Lro { card: card.clone(), on: cards.lro(card).map_err(cannot)? }
            }
            Self::Coalescing { card, .. } => {
                let Coalescing { rx_usecs, adaptive } = cards.coalescing(card).map_err(cannot)?;
                Self::Coalescing { card: card.clone(), rx_usecs, adaptive }
            }
        })
    }

    /// Sets it, and reads it back.
    fn set(&self, cards: &Cards) -> Result<(), Error> {
        self.checked()?;
        let cannot = |source| Error::Change { setting: self.command(), source };
        match self {
            Self::File { path, value } => fs::write(path, value).map_err(cannot)?,
            Self::RxRing { card, descriptors } => {
                cards.set_ring(card, *descriptors).map_err(cannot)?;
            }
            Self::Gro { card, on } => cards.set_gro(card, *on).map_err(cannot)?,
            Self::Lro { card, on } => cards.set_lro(card, *on).map_err(cannot)?,
            Self::Coalescing { card, rx_usecs, adaptive } => {
                let wanted = Coalescing { rx_usecs: *rx_usecs, adaptive: *adaptive };
                cards.set_coalescing(card, wanted).map_err(cannot)?;
            }
        }
        match self.now(cards)? {
            now if now == *self => Ok(()),
            now => Err(Error::Kept { setting: self.command(), now: now.command() }),
        }
    }
}

/// True for the files that doctor changes, and for no other.
fn is_setting(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    if parts.iter().any(|part| *part == ".." || *part == ".") {
        return false;
    }
    matches!(
        parts.as_slice(),
        ["", "proc", "sys", "net", "core", _]
            | ["", "proc", "sys", "kernel", "numa_balancing"]
            | ["", "sys", "class", "net", _, "gro_flush_timeout" | "napi_defer_hard_irqs"]
            | ["", "sys", "kernel", "mm", "transparent_hugepage", "enabled"]
            | ["", "sys", "devices", "system", "cpu", _, "cpufreq", "scaling_governor"]
            | ["", "sys", "devices", "system", "cpu", _, "cpuidle", _, "disable"]
    )
}

/// A setting that cannot be changed or put back.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is no setting.
    #[error("{path}: not one of the settings that doctor changes")]
    NoSetting {
        /// The path.
        path: String,
    },
    /// The value of now cannot be read.
    #[error("{setting}: reading the value of now: {source}")]
    Read {
        /// The setting, as a command.
        setting: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// It cannot be changed.
    #[error("{setting}: {source}")]
    Change {
        /// The setting, as a command.
        setting: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel accepted the value, and has another one.
    #[error("{setting}: accepted, but the value is now that of `{now}`")]
    Kept {
        /// The setting, as a command.
        setting: String,
        /// The command of the value of now.
        now: String,
    },
    /// The cards cannot be asked.
    #[error("asking network cards: {0}")]
    Cards(io::Error),
    /// The undo file.
    #[error("{}: {why}", path.display())]
    UndoFile {
        /// The file.
        path: PathBuf,
        /// The problem.
        why: String,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<std::borrow::Cow<'static, str>> {
        match self {
            Self::Change { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("run it as root".into())
            }
            Self::UndoFile { .. } => Some("name another file with --undo-file".into()),
            Self::Kept { .. } => Some("the driver or another service sets it, too".into()),
            _ => None,
        }
    }
}

/// What was, for each changed setting.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UndoFile {
    /// Settings with their values before the first change, in the order of the changes.
    before: Vec<Setting>,
}

fn read(path: &Path) -> Result<UndoFile, Error> {
    let bad = |why: String| Error::UndoFile { path: path.to_owned(), why };
    let length = fs::metadata(path).map_err(|error| bad(error.to_string()))?.len();
    if length > LARGEST_FILE_BYTES {
        return Err(bad(format!("{length} bytes are too long for an undo file")));
    }
    let text = fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
    let file: UndoFile = serde_json::from_str(&text)
        .map_err(|error| bad(format!("not an undo file of doctor: {error}")))?;
    file.before.iter().try_for_each(Setting::checked)?;
    Ok(file)
}

/// The result of one change.
#[derive(Debug)]
pub struct Change {
    /// The setting, as a command.
    pub command: String,
    /// The error, if it was not made.
    pub failed: Option<Error>,
}

/// Writes the undo file, then changes all settings. A setting that cannot be changed stops no other.
pub fn apply(settings: &[Setting], undo_file: &Path) -> Result<Vec<Change>, Error> {
    let cards = Cards::open().map_err(Error::Cards)?;
    let mut file = match undo_file.exists() {
        true => read(undo_file)?,
        false => UndoFile::default(),
    };
    let mut changes = Vec::new();
    let mut readable = Vec::new();
    for setting in settings {
        match setting.now(&cards) {
            Ok(before) => {
                if !file.before.iter().any(|known| known.is_of(&before)) {
                    file.before.push(before);
                }
                readable.push(setting);
            }
            Err(error) => {
                changes.push(Change { command: setting.command(), failed: Some(error) });
            }
        }
    }
    write(undo_file, &file)?;
    for setting in readable {
        changes.push(Change { command: setting.command(), failed: setting.set(&cards).err() });
    }
    Ok(changes)
}

fn write(undo_file: &Path, file: &UndoFile) -> Result<(), Error> {
    let bad = |why: String| Error::UndoFile { path: undo_file.to_owned(), why };
    if let Some(directory) = undo_file.parent().filter(|it| !it.as_os_str().is_empty()) {
        fs::create_dir_all(directory).map_err(|error| bad(error.to_string()))?;
    }
    history::write(undo_file, file).map_err(|error| bad(error.to_string()))
}

/// Puts everything back. The file stays if a setting could not be put back, with those settings in it.
pub fn undo(undo_file: &Path) -> Result<Vec<Change>, Error> {
    let cards = Cards::open().map_err(Error::Cards)?;
    let mut file = read(undo_file)?;
    let mut changes = Vec::new();
    let mut left = Vec::new();
    while let Some(setting) = file.before.pop() {
        let failed = setting.set(&cards).err();
        let change = Change { command: setting.command(), failed };
        if change.failed.is_some() {
            left.insert(0, setting);
        }
        changes.push(change);
    }
    if left.is_empty() {
        fs::remove_file(undo_file).map_err(|error| Error::UndoFile {
            path: undo_file.to_owned(),
            why: format!("everything is back, but the file cannot be removed: {error}"),
        })?;
    } else {
        write(undo_file, &UndoFile { before: left })?;
    }
    Ok(changes)
}
