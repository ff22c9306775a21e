//! The dialect of a Mark6, as its control program `cplane` speaks it on TCP port 14242.
//!
//! ```text
//! input_stream=add:ifa:vdif:8224:42:0:eth3:192.0.2.3:4001 ;   !input_stream= 0 : 0 ;
//! input_stream=commit ;                                       !input_stream= 0 : 0 ;
//! record=on:40:10:no0001:r1234:Wz ;                           !record= 0 : 0 ;
//! record? ;                                                   !record? 0 : 0 : recording : 1 : 1 : r1234_Wz_no0001 ;
//! ```
//!
//! An answer has a second code behind that of VSI-S. It is 0 if all is well, and otherwise the number of a [message](MESSAGES)
//! which `msg?` tells in words. All connections share one set of input streams and one recording, as they do on a Mark6.
//! The groups of a Mark6 are the disk set of the station here: opening and mounting them changes nothing, and making or
//! erasing them is refused. No command removes data.

mod checks;
mod record;
mod streams;

use fullbore_time::Tai;

use self::streams::Streams;
use crate::line::{self, Statement};
use crate::reply::{self, Code, Reply, sentence};
use crate::station::{Activity, Station};
use crate::{Dialect, Outcome};

/// The port of a Mark6.
pub const DEFAULT_PORT: u16 = 14242;

/// The name under which a station keeps the recording of this dialect. No runtime of a FlexBuff has a blank in its name.
pub const RUNTIME: &str = "mark6 cplane";

/// What a second code stands for.
pub const MESSAGES: &[(u16, &str)] = &[
    (0, "done"),
    (1, "this host may ask, and not command"),
    (3, "no such keyword"),
    (5, "a parameter is wrong"),
    (6, "no input stream is committed"),
    (7, "a recording runs"),
    (8, "no recording runs"),
    (9, "the time is past"),
    (10, "there is not enough space"),
    (11, "the name and all its variants are taken"),
    (12, "the recorder could not be started"),
    (13, "there is no scan"),
    (14, "the scan is being read, ask again"),
    (15, "nothing is removed or formatted over this port"),
];

/// The numbers of messages.
mod message {
    pub(super) const FORBIDDEN: u16 = 1;
    pub(super) const KEYWORD: u16 = 3;
    pub(super) const PARAMETER: u16 = 5;
    pub(super) const NO_STREAM: u16 = 6;
    pub(super) const RUNS: u16 = 7;
    pub(super) const IDLE: u16 = 8;
    pub(super) const PAST: u16 = 9;
    pub(super) const SPACE: u16 = 10;
    pub(super) const TAKEN: u16 = 11;
    pub(super) const START: u16 = 12;
    pub(super) const NO_SCAN: u16 = 13;
    pub(super) const READING: u16 = 14;
    pub(super) const REMOVAL: u16 = 15;
}

/// A connection.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    may_write: bool,
}

/// The dialect, with the state that all connections share.
#[derive(Debug, Default)]
pub struct Cplane {
    streams: Streams,
    /// The planned start and end of the recording, as the last command gave them.
    planned: Option<(Tai, Tai)>,
}

/// It is done.
fn done() -> Reply {
    Reply::done().with("0")
}

/// It is not done: the code, the number of the message, and the reason as the last field.
fn refused(code: Code, message: u16, why: &str) -> Reply {
    Reply::new(code).with(message.to_string()).with(sentence(why))
}

/// It is not done, for a reason that is the message itself.
fn refused_by(code: Code, message: u16) -> Reply {
    let text = MESSAGES.iter().find(|it| it.0 == message).map_or("", |it| it.1);
    refused(code, message, text)
}

impl Dialect for Cplane {
    type Session = Session;

    fn session(may_write: bool) -> Session {
        Session { may_write }
    }

    fn line(
        &mut self,
        session: &mut Session,
        station: &mut dyn Station,
        text: &str,
        may_wait: bool,
    ) -> Outcome {
        let mut answers = Vec::new();
        let all = line::statements(text);
        let parts: Vec<&str> = text.split(';').filter(|part| !part.trim().is_empty()).collect();
        for (number, statement) in all.iter().enumerate() {
            let answer = match statement {
                Err(error) => {
                    reply::without_keyword(&Self::refuse(reply::code_of(error), &error.to_string()))
                }
                Ok(statement) => match self.statement(*session, station, statement) {
                    Some(reply) => reply.to_text(statement),
                    None if may_wait => {
                        let rest = parts.get(number..).unwrap_or_default().join(";");
                        return Outcome::Wait { answered: answers.join(" "), rest };
                    }
                    None => refused_by(Code::Busy, message::READING).to_text(statement),
                },
            };
            answers.push(answer);
        }
        Outcome::Answer(answers.join(" "))
    }

    fn refuse(code: Code, why: &str) -> Reply {
        match code {
            Code::Unknown => refused(code, message::KEYWORD, why),
            _ => refused(code, message::PARAMETER, why),
        }
    }
}

impl Cplane {
    /// Answers a statement; `None` if it needs what is being read from a disk.
    fn statement(
        &mut self,
        session: Session,
        station: &mut dyn Station,
        statement: &Statement,
    ) -> Option<Reply> {
        let is_command = statement.is_command();
        if is_command && !session.may_write {
            return Some(refused_by(Code::Failed, message::FORBIDDEN));
        }
        Some(match (statement.keyword.as_str(), is_command) {
            ("record", true) => self.record(station, statement),
            ("record", false) => self.tell_recording(station),
            ("input_stream", true) if is_running(station) => {
                refused_by(Code::Conflict, message::RUNS)
            }
            ("input_stream", true) => self.streams.command(statement),
            ("input_stream", false) => self.streams.tell(),
            ("group", true) => group(statement),
            ("group", false) => done().with(group_name(station)),
            ("mod_init", true) => refused_by(Code::NotImplemented, message::REMOVAL),
            ("mstat", false) => checks::members(station),
            ("list", false) => checks::list(station),
            ("rtime", false) => checks::time_left(station),
            ("scan_check", false) if is_running(station) => {
                refused_by(Code::Conflict, message::RUNS)
            }
            ("scan_check", false) => return checks::scan(station, statement),
            ("status", false) => checks::status(station, self.streams.is_committed()),
            ("msg", false) => tell_message(statement),
            ("sys_info" | "dts_id", false) => {
                let identity = station.identity();
                let host = identity.host.as_str();
                done().with_all([host, "fullbore", &identity.version, &identity.system])
            }
            _ => refused_by(Code::Unknown, message::KEYWORD),
        })
    }
}

fn is_running(station: &dyn Station) -> bool {
    matches!(station.activity(RUNTIME), Activity::Running(_))
}

/// `group=`: the disk set of the station is the only group, and is always open.
fn group(statement: &Statement) -> Reply {
    match statement.field(0).to_ascii_lowercase().as_str() {
        "open" | "close" | "mount" | "unmount" => done(),
        "new" | "erase" | "format" | "unprotect" => {
            refused_by(Code::NotImplemented, message::REMOVAL)
        }
        _ => refused(Code::Parameter, message::PARAMETER, "open, close, mount or unmount"),
    }
}

/// The group: the numbers of the members, as a Mark6 names one by the numbers of its modules. A set of more than nine is
/// named by the first nine.
fn group_name(station: &dyn Station) -> String {
    (1..=station.space().members.len().min(9)).map(|number| number.to_string()).collect()
}

/// `msg?<code>`.
fn tell_message(statement: &Statement) -> Reply {
    let code = statement.field(0).parse::<u16>().ok();
    match MESSAGES.iter().find(|it| Some(it.0) == code) {
        Some((code, text)) => done().with(code.to_string()).with(*text),
        None => refused(Code::Parameter, message::PARAMETER, "there is no such message"),
    }
}

#[cfg(test)]
mod tests;
