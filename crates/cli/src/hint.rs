//! Error messages for users: each cause once, and advice on a separate line.

use std::error::Error;

use fullbore_care::{recover, redundancy, remove};
use fullbore_core::endpoint;
use fullbore_device as device;
use fullbore_engine::recorder::RecordError;
use fullbore_linux::place::PlaceError;
use fullbore_panda as panda;
use fullbore_recording::store::StoreError;
use fullbore_recording::{OptionError, SessionError};
use fullbore_replay as replayer;
use fullbore_simulators::{generate, panda as panda_server};
use fullbore_store::{catalogue, follow, inventory, markers};
use fullbore_survey::bench::{disk, history};
use fullbore_survey::selftest;

/// An error that may have advice.
pub trait Hint: Error + Send + Sync + 'static {
    /// A sentence of advice for the user.
    fn advice(&self) -> Option<String>;
}

macro_rules! hint {
    ($($error:ty),* $(,)?) => {$(
        impl Hint for $error {
            fn advice(&self) -> Option<String> {
                self.hint().map(Into::into)
            }
        }
    )*};
}

hint!(
    catalogue::Error,
    device::Error,
    endpoint::Error,
    follow::Error,
    generate::Error,
    inventory::Error,
    markers::Error,
    recover::Error,
    redundancy::restore::Error,
    remove::Error,
    replayer::Error,
    fullbore_core::schedule::Error,
    OptionError,
    PlaceError,
    RecordError,
    SessionError,
    StoreError,
    panda::Error,
    panda_server::ReplayError,
    disk::Error,
    history::Error,
    selftest::Error,
    selftest::OpenError,
);

hint!(
    fullbore_survey::bench::all::Error,
    fullbore_survey::bench::memory::Error,
    fullbore_survey::bench::net::Error,
    fullbore_survey::bench::net::wire::Error,
);

#[cfg(feature = "hdf5")]
hint!(fullbore_hdf5::Error, fullbore_recording::export::ExportError);

/// The error, with its advice below.
pub fn explained<E: Hint>(error: E) -> anyhow::Error {
    let advice = error.advice();
    with_advice(error.into(), advice)
}

/// The same, preceded by the operation.
pub fn explained_of<E: Hint>(what: &str, error: E) -> anyhow::Error {
    let advice = error.advice();
    with_advice(anyhow::Error::from(error).context(what.to_owned()), advice)
}

/// An error of another crate, with advice below.
pub fn with_advice(error: anyhow::Error, advice: Option<String>) -> anyhow::Error {
    match advice {
        Some(advice) => anyhow::anyhow!("{}\n  {advice}", told(&error)),
        None => error,
    }
}

/// An error with its causes. Some errors include their cause: it is not repeated.
pub fn told(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text += &format!(": {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_cause_that_an_error_tells_itself_is_not_told_again() {
        let source = std::io::Error::from_raw_os_error(2);
        let path = PathBuf::from("/x");
        let error = explained(RecordError::File { path: path.clone(), source });
        assert_eq!(told(&error), "/x: No such file or directory (os error 2)");
        let source = std::io::Error::from_raw_os_error(2);
        let silent = replayer::FileError::Open { path, source };
        let error = anyhow::Error::from(silent).context("playing");
        assert_eq!(told(&error), "playing: /x: opening it: No such file or directory (os error 2)");
    }

    #[test]
    fn what_to_do_stands_on_a_line_of_its_own() {
        let error = explained(RecordError::NoMember);
        assert_eq!(
            told(&error),
            "no member of the disk set was given\n  give a directory with --store"
        );
    }
}
