//! `disk2file` and `file_check?`: a part of a scan as a file.

use super::scans::{Chosen, told};
use super::{FlexBuff, Session};
use crate::line::Statement;
use crate::reply::{Code, Reply};
use crate::station::{CopyJob, CopyState, Facts, Station};

/// The longest name of a file.
const LONGEST_FILE: usize = 200;

impl FlexBuff {
    /// `disk2file=<file>:<start>:<end>:<w|n|a>`. The scan is that of `scan_set`.
    pub(super) fn copy(
        &mut self,
        session: &Session,
        station: &mut dyn Station,
        statement: &Statement,
    ) -> Option<Reply> {
        let Some(Chosen { name, start, end }) = self.own(session).chosen.clone() else {
            return Some(Reply::because(Code::Conflict, "no scan is set"));
        };
        let file = match statement.field(0) {
            "" => format!("{name}.vdif"),
            text => text.to_owned(),
        };
        if let Some(copy) = station.copying(&session.runtime).filter(|it| it.is_active) {
            // The same command again, as after a timeout, begins nothing.
            return Some(match copy.job.scan == name && copy.job.file == file {
                true => Reply::new(Code::Started),
                false => Reply::because(Code::Conflict, "Already doing disk2file"),
            });
        }
        if let Err(why) = check_name(&file) {
            return Some(Reply::because(Code::Parameter, why));
        }
        match statement.field(3).to_ascii_lowercase().as_str() {
            "" | "n" | "w" => {}
            "a" => {
                let why = "appending is not implemented, files are written whole";
                return Some(Reply::because(Code::NotImplemented, why));
            }
            _ => return Some(Reply::because(Code::Parameter, "the mode is w, n or a")),
        }
        let bytes = match station.facts(&name) {
            Facts::Known(facts) => facts.bytes,
            Facts::Reading => return None,
            Facts::Failed(why) => return Some(Reply::because(Code::Failed, &why)),
        };
        let given = |number, otherwise| match statement.field(number) {
            "" => Some(otherwise),
            text => text.parse::<u64>().ok(),
        };
        let range = given(1, start).zip(given(2, end.unwrap_or(bytes)));
        let Some((start, end)) = range.filter(|(start, end)| start < end && *end <= bytes) else {
            let why = format!("start and end are bytes of the scan, which has {bytes}");
            return Some(Reply::because(Code::Parameter, &why));
        };
        let job = CopyJob { scan: name, file, start, end };
        Some(match station.copy(&session.runtime, job) {
            Ok(()) => Reply::new(Code::Started),
            Err(why) => Reply::because(Code::Failed, &why),
        })
    }
}

/// A file has a name, and no path: it goes to the directory that the operator of the daemon chose.
fn check_name(file: &str) -> Result<(), &'static str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '_' | '.');
    match file.len() <= LONGEST_FILE && !file.starts_with('.') && file.chars().all(is_plain) {
        true => Ok(()),
        false => Err("a file is a name of letters, digits, -, +, _ and ., without directories"),
    }
}

/// `file_check?::<file>`: what the two ends of a file tell. `None` if it is being read.
pub(super) fn check(station: &mut dyn Station, statement: &Statement) -> Option<Reply> {
    // The first two fields, with which other recorders choose how much to read, change nothing.
    let file = statement.field(2);
    if file.is_empty() || check_name(file).is_err() {
        let why = "write the name of a file in the directory for files, without directories";
        return Some(Reply::because(Code::Parameter, why));
    }
    match station.file_facts(file) {
        Facts::Known(facts) => Some(Reply::done().with_all(told(&facts))),
        Facts::Failed(why) => Some(Reply::because(Code::Failed, &why)),
        Facts::Reading => None,
    }
}

/// The answer to `disk2file?`.
pub(super) fn tell(state: Option<CopyState>) -> Reply {
    match state {
        None => Reply::done().with("inactive"),
        Some(CopyState { job, is_active: false, .. }) => {
            Reply::done().with("inactive").with(job.file)
        }
        Some(CopyState { job, current, .. }) => {
            let bytes = [job.start, current, job.end].map(|it| it.to_string());
            Reply::done().with("active").with(job.file).with_all(bytes).with("n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_never_a_path() {
        for name in ["r1_Wz_no1.vdif", "a", "A-1+b_c.d.e"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "/tmp/x", "../x", ".x", "a/b", "a b", "é", "~x", &"x".repeat(201)] {
            assert_eq!(check_name(name).is_err(), !name.is_empty(), "{name}");
        }
    }
}
