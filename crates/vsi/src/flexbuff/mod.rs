//! The dialect of a FlexBuff station, as jive5ab 3.1.0 speaks it to the Field System and to m5copy.
//!
//! ```text
//!  Session (one for each connection: its runtime, may it write?)
//!     │ line
//!     ▼
//!  FlexBuff ──► Runtime (mode, ports, protocol, chosen scan) ──► Station (recordings, scans, space)
//!     └────────► ErrorQueue
//! ```
//!
//! A pure machine: it reads no clock, opens nothing and waits for nothing. The same command given twice, as a client does
//! after a timeout, begins and ends nothing the second time. No command removes data.

mod errors;
mod files;
mod recording;
mod scans;
mod setup;
mod values;

use std::collections::BTreeMap;

pub use self::setup::Setup;
use crate::line::{self, Statement};
use crate::reply::{self, Code, Reply};
use crate::station::Station;
pub use crate::{Dialect, Outcome};
use errors::ErrorQueue;
use recording::{LossFormat, Rate};
use scans::Chosen;

/// The runtime of a new connection.
pub const DEFAULT_RUNTIME: &str = "default";

/// The most runtimes.
pub const MOST_RUNTIMES: usize = 16;

/// The longest name of a runtime.
const LONGEST_RUNTIME: usize = 32;

/// Keywords of transfers between stations, and why they are refused.
const TRANSFERS: &[&str] = &[
    "disk2net",
    "net2disk",
    "net2file",
    "file2net",
    "file2disk",
    "in2net",
    "net2out",
    "vbs2net",
    "net2vbs",
    "mem2net",
    "net2mem",
    "spill2net",
    "spill2file",
    "in2file",
    "in2mem",
    "fill2net",
    "fill2file",
    "splet2net",
    "disk2etransfer",
    "net2check",
    "net2sfxc",
    "mem2file",
    "mem2sfxc",
    "mem2time",
    "in2memfork",
    "fill2vbs",
    "file2mem",
    "vbs2vbs",
];

/// Keywords that remove data on other recorders.
const REMOVALS: &[&str] =
    &["reset", "delete", "erase", "file_delete", "recover", "vsn", "protect", "condition"];

/// A connection.
#[derive(Clone, Debug)]
pub struct Session {
    runtime: String,
    may_write: bool,
    /// The runtime that goes with this connection.
    transient: Option<String>,
    rate: Option<Rate>,
}

impl Session {
    /// A connection; `may_write` allows commands, not only queries.
    pub fn new(may_write: bool) -> Self {
        Self { runtime: DEFAULT_RUNTIME.to_owned(), may_write, transient: None, rate: None }
    }
}

/// The dialect, with the state that all connections share.
#[derive(Debug)]
pub struct FlexBuff {
    runtimes: BTreeMap<String, Runtime>,
    errors: ErrorQueue,
}

/// A set-up with its recording.
#[derive(Debug, Default)]
struct Runtime {
    setup: Setup,
    chosen: Option<Chosen>,
    loss_format: LossFormat,
    /// The value of `record=check_unique_recording_names`, which changes nothing: names are always unique.
    checks_names: Option<String>,
}

impl Default for FlexBuff {
    fn default() -> Self {
        let runtimes = BTreeMap::from([(DEFAULT_RUNTIME.to_owned(), Runtime::default())]);
        Self { runtimes, errors: ErrorQueue::default() }
    }
}

impl Dialect for FlexBuff {
    type Session = Session;

    fn session(may_write: bool) -> Session {
        Session::new(may_write)
    }

    fn line(
        &mut self,
        session: &mut Session,
        station: &mut dyn Station,
        text: &str,
        may_wait: bool,
    ) -> Outcome {
        self.errors.take(station.problems());
        let mut answers: Vec<String> = Vec::new();
        let all = line::statements(text);
        let parts: Vec<&str> = text.split(';').filter(|part| !part.trim().is_empty()).collect();
        for (number, statement) in all.iter().enumerate() {
            let answer = match statement {
                Err(error) => {
                    reply::without_keyword(&Self::refuse(reply::code_of(error), &error.to_string()))
                }
                Ok(statement) => match self.statement(session, station, statement) {
                    Some(reply) => reply.to_text(statement),
                    None if may_wait => {
                        let rest = parts.get(number..).unwrap_or_default().join(";");
                        return Outcome::Wait { answered: answers.join(" "), rest };
                    }
                    None => being_read(statement).to_text(statement),
                },
            };
            answers.push(answer);
        }
        Outcome::Answer(answers.join(" "))
    }

    /// The transient runtime of the connection goes, unless it records.
    fn end(&mut self, session: &Session, station: &dyn Station) {
        if let Some(name) = &session.transient
            && !recording::is_running(station, name)
        {
            self.runtimes.remove(name);
        }
    }
}

impl FlexBuff {
    /// Answers a statement; `None` if it needs what is being read from a disk.
    fn statement(
        &mut self,
        session: &mut Session,
        station: &mut dyn Station,
        statement: &Statement,
    ) -> Option<Reply> {
        let is_command = statement.is_command();
        let keyword = statement.keyword.as_str();
        if is_command && !session.may_write {
            let why = "commands are not allowed from this address, queries are";
            return Some(Reply::because(Code::Failed, why));
        }
        if !self.runtimes.contains_key(&session.runtime) {
            // Another connection removed it.
            session.runtime = DEFAULT_RUNTIME.to_owned();
        }
        Some(match (keyword, is_command) {
            ("version", false) => version(station),
            ("dts_id", false) => dts_id(station),
            ("os_rev" | "os_rev1" | "os_rev2", false) => {
                Reply::done().with(station.identity().system.clone())
            }
            ("error", false) => self.errors.answer(session.may_write),
            ("status", false) => self.status(&session.runtime, station),
            ("runtime", _) => self.runtime(session, station, statement),
            // The text of the clients is echoed in no log that they could read.
            ("echo" | "ack", true) => Reply::done(),
            ("set_disks", _) => set_disks(station, statement),
            ("rtime" | "dir_info" | "scan_set" | "scan_check" | "file_check" | "disk2file", _) => {
                return self.about_scans(session, station, statement);
            }
            ("record" | "evlbi" | "tstat", _) => self.about_recording(session, station, statement),
            ("mode" | "mtu" | "net_port" | "net_protocol" | "datastream" | "ipd", _) => {
                self.set_up(session, station, statement)
            }
            (keyword, _) if TRANSFERS.contains(&keyword) => {
                let why = "not implemented, scans are sent by fullbore send, receive --etransfer or receive --tsunami";
                Reply::because(Code::NotImplemented, why)
            }
            (keyword, true) if REMOVALS.contains(&keyword) => {
                Reply::because(Code::NotImplemented, "nothing is removed over this port")
            }
            _ => Reply::because(Code::Unknown, "ENOSYS - not implemented"),
        })
    }

    fn own(&mut self, session: &Session) -> &mut Runtime {
        self.runtimes.entry(session.runtime.clone()).or_default()
    }

    fn set_up(&mut self, session: &Session, station: &dyn Station, statement: &Statement) -> Reply {
        if statement.is_command() && recording::is_running(station, &session.runtime) {
            let why = "not whilst vbsrecord is in progress";
            return Reply::because(Code::Conflict, why);
        }
        let answer = self.own(session).setup.answer(statement);
        answer.unwrap_or_else(|| Reply::because(Code::Unknown, "ENOSYS - not implemented"))
    }

    fn runtime(
        &mut self,
        session: &mut Session,
        station: &dyn Station,
        statement: &Statement,
    ) -> Reply {
        if !statement.is_command() {
            let others = self.runtimes.keys().filter(|it| **it != session.runtime);
            let others: Vec<String> = others.cloned().collect();
            let count = self.runtimes.len().to_string();
            return Reply::done().with(session.runtime.clone()).with(count).with_all(others);
        }
        let (name, how) = (statement.field(0), statement.field(1).to_ascii_lowercase());
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > LONGEST_RUNTIME || !name.chars().all(is_plain) {
            return Reply::because(
                Code::Parameter,
                "a runtime has a name of letters, digits, - and _",
            );
        }
        let exists = self.runtimes.contains_key(name);
        match (how.as_str(), exists) {
            ("delete", true) if name == DEFAULT_RUNTIME => {
                Reply::because(Code::Conflict, "the default runtime stays")
            }
            ("delete", true) if recording::is_running(station, name) => {
                Reply::because(Code::Conflict, "the runtime records")
            }
            ("delete", true) => {
                self.runtimes.remove(name);
                if session.runtime == name {
                    session.runtime = DEFAULT_RUNTIME.to_owned();
                }
                Reply::done().with(session.runtime.clone())
            }
            ("delete" | "exists", false) => {
                Reply::because(Code::Failed, "there is no such runtime")
            }
            ("new", true) => Reply::because(Code::Failed, "the runtime exists"),
            ("" | "new" | "transient", false) if self.runtimes.len() >= MOST_RUNTIMES => {
                Reply::because(Code::Failed, "there are too many runtimes")
            }
            ("" | "exists" | "new" | "transient", exists) => {
                if how == "transient" && !exists {
                    self.end(session, station);
                    session.transient = Some(name.to_owned());
                }
                self.runtimes.entry(name.to_owned()).or_default();
                (session.runtime, session.rate) = (name.to_owned(), None);
                Reply::done().with(name)
            }
            _ => Reply::because(Code::Parameter, "new, exists, transient or delete"),
        }
    }
}

/// The answer if a scan could not be read in time. A command has begun nothing, so its code is not 1.
fn being_read(statement: &Statement) -> Reply {
    match statement.is_command() {
        true => Reply::because(Code::Busy, "the scan is being read, send the command again"),
        false => Reply::because(Code::Started, "Retry - the scan is being read"),
    }
}

/// `version?`. m5copy wants a program whose name begins with `jive5`, and compares the second field with versions of it.
fn version(station: &dyn Station) -> Reply {
    let identity = station.identity();
    let told = [
        "jive5ab-dialect",
        "3.1.0",
        "64bit",
        "Release",
        &identity.host,
        "fullbore",
        &identity.version,
        "nossapi",
    ];
    Reply::done().with_all(told).with("")
}

fn dts_id(station: &dyn Station) -> Reply {
    let identity = station.identity();
    let told = ["-", &identity.version, "1", &identity.host, "0", "0", "-", "-", "-"];
    Reply::done().with_all(told)
}

/// `set_disks`: the members are those of the daemon. A pattern that matches all of them is accepted.
fn set_disks(station: &dyn Station, statement: &Statement) -> Reply {
    let members = station.space().members;
    let count = members.len();
    if !statement.is_command() {
        return Reply::done().with(count.to_string()).with_all(members);
    }
    let refused = |code, why: &str| Reply::new(code).with("0").with(reply::sentence(why));
    if statement.fields.iter().any(|it| it == "null") {
        return refused(Code::NotImplemented, "data is not thrown away");
    }
    if statement.fields.iter().any(|it| it.starts_with('^')) {
        return refused(
            Code::NotImplemented,
            "regular expressions are not implemented, use * and [0-9]",
        );
    }
    let matches = |pattern: &String, member: &str| {
        let is_group = pattern.eq_ignore_ascii_case("flexbuff");
        is_group || glob::Pattern::new(pattern).is_ok_and(|it| it.matches(member))
    };
    let is_meant = |member: &&String| statement.fields.iter().any(|it| matches(it, member));
    match members.iter().filter(is_meant).count() {
        0 => refused(Code::Parameter, "no mountpoints match, the members are those of the daemon"),
        all if all == count => Reply::done().with(count.to_string()),
        some => {
            let why = format!("{some} of {count} members match, and recordings use all");
            Reply::new(Code::Conflict).with(some.to_string()).with(reply::sentence(&why))
        }
    }
}

#[cfg(test)]
mod tests;
