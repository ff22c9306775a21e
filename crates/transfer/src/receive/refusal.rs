//! Refusals of this end in words for the other one: what happened here, and what can be done there. Paths of this host are
//! left out.

use std::error::Error;
use std::io;

use fullbore_core::hint::Hint;
use fullbore_store::landing::LandingError;

use crate::error::TransferError;
use crate::protocol::{Message, Refusal};

/// The message that tells a peer why this end gives up.
pub(crate) fn of(error: &TransferError) -> Message {
    Message::Refuse { refusal: code(error), text: text(error) }
}

/// The code of the refusal.
pub(crate) fn code(error: &TransferError) -> Refusal {
    match error {
        TransferError::Landing(error) => super::refusal_of(error),
        TransferError::Outgoing(_)
        | TransferError::Died { .. }
        | TransferError::Incomplete { .. } => Refusal::NoScan,
        TransferError::Protocol { .. }
        | TransferError::Silent { .. }
        | TransferError::Channel(_)
        | TransferError::Stopped => Refusal::Failed,
        error => of_system(error),
    }
}

/// The refusal for an error of the system: a full disk passes, and a disk that cannot be written lasts.
pub(super) fn of_system(error: &(dyn Error + 'static)) -> Refusal {
    match kind(error) {
        Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => Refusal::NoRoom,
        Some(io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied) => {
            Refusal::Unable
        }
        _ => Refusal::Failed,
    }
}

/// The error of the system that is the cause of this one.
fn kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        next = error.source();
    }
    None
}

/// Returns the reason in words for the other end.
pub(crate) fn text(error: &TransferError) -> String {
    match error {
        TransferError::Landing(error) => of_landing(error),
        TransferError::Outgoing(_) => "the scan cannot be read there".to_owned(),
        TransferError::Member(_)
        | TransferError::Identity(_)
        | TransferError::Receipt(_)
        | TransferError::Listen { .. } => of_cause(error),
        error => error.to_string(),
    }
}

fn of_landing(error: &LandingError) -> String {
    match error {
        LandingError::Exists { .. } => {
            "another scan of this name is there: rename or remove it there (`fullbore rm`), or send to another store"
                .to_owned()
        }
        LandingError::Recovered { scan } => format!(
            "{scan} was recovered there from an incomplete copy, so it takes no more blocks: remove it there \
             (`fullbore rm {scan}`) and send the whole scan again, or keep it as it is"
        ),
        LandingError::Busy { .. } => "another process there receives or changes this scan".to_owned(),
        LandingError::MembersAbsent { .. } => {
            "disks with a part of the interrupted copy are not attached there: attach them".to_owned()
        }
        LandingError::Lost { .. } => {
            "the interrupted copy there is damaged: remove it there (`fullbore rm`) and send the whole scan again"
                .to_owned()
        }
        LandingError::NoSpace { .. } => {
            format!("the disks there are full, and space can come back: {error}")
        }
        LandingError::TooSmall { .. } => format!(
            "the disks there are too small for this scan: {error}; add disks there, or send to another site"
        ),
        LandingError::Unreadable { .. } => with_advice(error.to_string(), error),
        LandingError::Manifest(_)
        | LandingError::Records(_)
        | LandingError::NoMember
        | LandingError::Complete { .. }
        | LandingError::Unfinished { .. }
        | LandingError::Closed => error.to_string(),
        LandingError::Member(_)
        | LandingError::Lock(_)
        | LandingError::Inventory(_)
        | LandingError::Renumber(_)
        | LandingError::Read { .. }
        | LandingError::Write { .. } => of_cause(error),
    }
}

fn with_advice(text: String, error: &impl Hint) -> String {
    match error.hint() {
        Some(hint) => format!("{text}; {hint}"),
        None => text,
    }
}

/// An error whose words have paths of this host in them.
fn of_cause(error: &(dyn Error + 'static)) -> String {
    match kind(error) {
        Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
            "a disk there is full, and space can come back".to_owned()
        }
        Some(io::ErrorKind::ReadOnlyFilesystem) => {
            "the store there is read-only: mount its disks for writing".to_owned()
        }
        Some(io::ErrorKind::PermissionDenied) => {
            "fullbore may not write to the store there: correct the permissions of its disks"
                .to_owned()
        }
        Some(kind) => {
            format!("a disk there failed: {kind}; the log of fullbore there has the file")
        }
        None => "the store there cannot be used: the log of fullbore there says why".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn write(kind: io::ErrorKind) -> TransferError {
        let path = PathBuf::from("/data/secret/r1_a");
        LandingError::Write { path, source: kind.into() }.into()
    }

    #[test]
    fn only_a_full_disk_passes_by_itself() {
        for (kind, refusal) in [
            (io::ErrorKind::StorageFull, Refusal::NoRoom),
            (io::ErrorKind::QuotaExceeded, Refusal::NoRoom),
            (io::ErrorKind::ReadOnlyFilesystem, Refusal::Unable),
            (io::ErrorKind::PermissionDenied, Refusal::Unable),
            (io::ErrorKind::Other, Refusal::Failed),
        ] {
            assert_eq!(code(&write(kind)), refusal, "{kind}");
        }
        let small: TransferError = LandingError::TooSmall { needed: 10, all: 5 }.into();
        assert_eq!(code(&small), Refusal::Unable);
        let full: TransferError = LandingError::NoSpace { needed: 10, free: 5 }.into();
        assert_eq!(code(&full), Refusal::NoRoom);
    }

    #[test]
    fn no_path_of_this_host_is_in_the_words_for_a_peer() {
        let path = || PathBuf::from("/data/secret/r1_a");
        let scan: fullbore_core::name::ScanName = "r1_a".parse().unwrap();
        for error in [
            write(io::ErrorKind::Other),
            LandingError::Exists { path: path() }.into(),
            LandingError::Busy { path: path() }.into(),
            LandingError::Lost { path: path(), why: String::new() }.into(),
            LandingError::MembersAbsent { scan, members: vec![path()] }.into(),
        ] {
            let Message::Refuse { text, .. } = of(&error) else { panic!() };
            assert!(!text.contains("/data"), "{text}");
        }
    }
}
