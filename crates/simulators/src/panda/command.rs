//! The control port of a simulated PandA: commands and answers.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use fullbore_formats::panda::control::LONGEST_REQUEST;
use fullbore_formats::panda::{Decoder, Event, Want};

use super::Shared;
use super::model::{self, CLOCK_HZ, Kind, MENU, OPTIONS};
use super::samples::{base64, from_base64};
use super::settings::{Group, Settings};

/// Bytes of a line of a table in base64.
const BASE64_BYTES: usize = 57;

type Answer = Result<Reply, &'static str>;

/// The answer to a command.
enum Reply {
    Ok,
    Value(String),
    Lines(Vec<String>),
}

fn value(text: impl ToString) -> Answer {
    Ok(Reply::Value(text.to_string()))
}

fn lines<T: ToString>(lines: impl IntoIterator<Item = T>) -> Answer {
    Ok(Reply::Lines(lines.into_iter().map(|line| line.to_string()).collect()))
}

impl Reply {
    fn text(answer: Answer) -> String {
        match answer {
            Ok(Reply::Ok) => "OK\n".to_owned(),
            Ok(Reply::Value(text)) => format!("OK ={text}\n"),
            Ok(Reply::Lines(lines)) => {
                lines.iter().map(|line| format!("!{line}\n")).collect::<String>() + ".\n"
            }
            Err(text) => format!("ERR {text}\n"),
        }
    }
}

/// Serves one connection until it ends.
pub(super) fn serve(shared: &Arc<Shared>, socket: TcpStream) {
    let _ = socket.set_nodelay(true);
    let Ok(clone) = socket.try_clone() else { return };
    let mut connection = Connection { shared, marks: HashMap::new() };
    let mut reader = BufReader::new(clone);
    let mut socket = socket;
    while let Some(line) = read_line(&mut reader) {
        let answer = match line {
            Err(text) => Err(text),
            Ok(line) => match connection.table(&line, &mut reader) {
                Some(answer) => answer,
                None => connection.command(&line),
            },
        };
        if socket.write_all(Reply::text(answer).as_bytes()).is_err() {
            break;
        }
    }
}

/// A line without its line feed; `None` when the other side has closed.
fn read_line(reader: &mut impl BufRead) -> Option<Result<String, &'static str>> {
    let mut line = Vec::new();
    let most = LONGEST_REQUEST as u64 + 1;
    reader.take(most).read_until(b'\n', &mut line).ok()?;
    match line.pop() {
        Some(b'\n') => Some(Ok(String::from_utf8_lossy(&line).into_owned())),
        Some(_) if line.len() as u64 + 1 == most => {
            loop {
                let rest = reader.fill_buf().ok().filter(|rest| !rest.is_empty())?;
                match rest.iter().position(|&byte| byte == b'\n') {
                    Some(at) => {
                        reader.consume(at + 1);
                        break;
                    }
                    None => {
                        let all = rest.len();
                        reader.consume(all);
                    }
                }
            }
            Some(Err("Line too long"))
        }
        _ => None,
    }
}

struct Connection<'a> {
    shared: &'a Shared,
    /// The latest change that this connection has read, by group.
    marks: HashMap<&'static str, u64>,
}

impl Connection<'_> {
    /// `T<` and its lines up to an empty one.
    fn table(&mut self, line: &str, reader: &mut impl BufRead) -> Option<Answer> {
        let (name, how) = line.split_once('<').filter(|(name, _)| !name.contains(['=', '?']))?;
        let mut given = Vec::new();
        loop {
            match read_line(reader)? {
                Ok(line) if line.is_empty() => break,
                Ok(line) if given.len() <= Settings::LONGEST_TABLE => given.push(line),
                _ => {}
            }
        }
        let (append, binary) = match how {
            "" => (false, false),
            "<" | "<|" => (true, false),
            "B" => (false, true),
            "<B" | "<|B" => (true, true),
            _ => return Some(Err("Unexpected text after command")),
        };
        let Some(given) = (if binary { words(&given) } else { Some(given) }) else {
            return Some(Err("Invalid base64 data"));
        };
        let mut state = self.shared.lock();
        let mut all = match append {
            true => state.settings.lines(name).map(<[String]>::to_vec).unwrap_or_default(),
            false => Vec::new(),
        };
        all.extend(given);
        Some(state.settings.set_lines(name, all).map(|()| Reply::Ok))
    }

    fn command(&mut self, line: &str) -> Answer {
        if let Some((name, text)) = line.split_once('=') {
            return match name.starts_with('*') {
                true => self.set_star(name, text),
                false => self.shared.lock().settings.set(name, text).map(|()| Reply::Ok),
            };
        }
        let stop_request = line.strip_suffix('?');
        if let Some(answer) = stop_request.and_then(|name| self.replayed(name)) {
            return answer;
        }
        match stop_request {
            Some(name) if name.starts_with('*') => self.ask_star(name),
            Some(name) => self.ask(name),
            None => Err("Unknown command"),
        }
    }

    fn set_star(&mut self, name: &str, text: &str) -> Answer {
        match name {
            "*PCAP.ARM" => {
                if self.shared.plan.dump.is_none() {
                    self.shared.arm()?;
                }
            }
            "*PCAP.DISARM" => self.shared.disarm(),
            "*CAPTURE" => self.shared.lock().settings.clear_capture(),
            "*SAVESTATE" | "*VERBOSE" => {}
            _ if name.starts_with("*METADATA.") => self.shared.lock().settings.set(name, text)?,
            _ if name == "*CHANGES" || name.starts_with("*CHANGES.") => {
                let mark = match text {
                    "" | "E" => self.shared.lock().settings.changes,
                    "S" => 0,
                    _ => return Err("Invalid reset option"),
                };
                for (_, group) in groups(name)? {
                    self.marks.insert(group, mark);
                }
            }
            _ => return Err("Unknown star field"),
        }
        Ok(Reply::Ok)
    }

    /// The answer about a replayed PandA.
    fn replayed(&self, name: &str) -> Option<Answer> {
        let replay = self.shared.plan.replay.as_ref()?;
        let Some(settings) = replay.settings() else {
            let columns = replay.header().fields.iter();
            let captured = columns.map(|field| format!("{} {}", field.name, field.capture));
            return (name == "*CAPTURE").then(|| lines(captured));
        };
        let named = |all: &[(String, Vec<String>)], name: &str| {
            all.iter().find(|(of, _)| of == name).map(|(_, found)| lines(found))
        };
        match name {
            "*IDN" => Some(value(&settings.identity)),
            "*CAPTURE" => Some(lines(&settings.capture)),
            "*CHANGES.CONFIG" => Some(lines(&settings.config)),
            "*CHANGES.ATTR" => Some(lines(&settings.attributes)),
            "*CHANGES.TABLE" => {
                Some(lines(settings.tables.iter().map(|(name, _)| format!("{name}<"))))
            }
            _ => match (name.strip_suffix(".B"), name.strip_suffix(".BITS")) {
                (Some(table), _) => named(&settings.tables, table),
                (_, Some(word)) => named(&settings.bits, word),
                _ => None,
            },
        }
    }

    fn ask_star(&mut self, name: &str) -> Answer {
        match name {
            "*IDN" => value("PandA SW: 4.1 FPGA: 4.1.0 816147d6 00000000 rootfs: PandA fullbore"),
            "*PCAP.STATUS" => self.status(),
            "*PCAP.CAPTURED" => value(self.captured().0),
            "*PCAP.COMPLETION" => value(self.captured().1),
            "*CLOCK_FREQ" => value(CLOCK_HZ),
            "*BLOCKS" => {
                lines(model::BLOCKS.iter().map(|block| format!("{} {}", block.name, block.count)))
            }
            "*CAPTURE" => {
                let state = self.shared.lock();
                let captured = state.settings.captured();
                lines(captured.map(|(place, options)| format!("{} {options}", place.name())))
            }
            "*CAPTURE.*" => {
                let capturable =
                    |place: &model::Place| place.field.kind.attributes().contains(&"CAPTURE");
                lines(model::places().filter(capturable).map(|place| place.name()))
            }
            "*CAPTURE.OPTIONS" => lines(OPTIONS),
            "*CAPTURE.ENUMS" => lines(MENU),
            "*POSITIONS" => {
                let positions = model::places().filter(|place| place.field.kind == Kind::PosOut);
                lines(positions.map(|place| place.name()))
            }
            "*WHO" => {
                let state = self.shared.lock();
                lines(state.connections.iter().map(|connection| {
                    let address = connection.socket.peer_addr().map(|it| it.to_string());
                    let (since, kind) = (connection.since, connection.kind);
                    format!("{since:.3} {kind} {} ", address.unwrap_or_default())
                }))
            }
            "*METADATA.*" => {
                lines(self.shared.lock().settings.metadata().map(str::to_owned).collect::<Vec<_>>())
            }
            _ if name.starts_with("*METADATA.") => self.setting(name),
            _ if name == "*CHANGES" || name.starts_with("*CHANGES.") => self.changes(name),
            _ => match (name.strip_prefix("*DESC."), name.strip_prefix("*ENUMS.")) {
                (Some(name), _) => description(name),
                (_, Some(name)) => labels(name),
                _ => name.strip_prefix("*ECHO ").map_or(Err("Unknown star field"), value),
            },
        }
    }

    fn ask(&self, name: &str) -> Answer {
        if let Some(block) = name.strip_suffix(".*").filter(|name| !name.contains('.')) {
            let fields = model::block(block)?.0.fields.iter().enumerate();
            return lines(
                fields.map(|(n, field)| format!("{} {n} {}", field.name, field.kind.text())),
            );
        }
        let (place, attribute) = model::place(name)?;
        let full = place.name();
        match (place.field.kind, attribute) {
            (kind, Some("*")) => lines(kind.attributes()),
            (kind, Some("INFO")) => value(kind.text()),
            (Kind::BitOut, Some("CAPTURE_WORD")) => value(format!("PCAP.BITS{}", place.bit().0)),
            (Kind::BitOut, Some("OFFSET")) => value(place.bit().1),
            (Kind::BitMux, Some("MAX_DELAY")) => value(31),
            (Kind::Uint(most), Some("MAX")) => value(most),
            (Kind::Uint(_), Some("RAW")) => self.setting(&full),
            (Kind::Enum(names), Some("LABELS")) => lines(names),
            (Kind::Enum(names), Some("RAW")) => {
                let state = self.shared.lock();
                let set = state.settings.text(&full).unwrap_or_default();
                value(names.iter().position(|name| *name == set).unwrap_or(0))
            }
            (Kind::Time, Some("MIN")) => value("8e-09"),
            (Kind::Time, Some("RAW")) | (Kind::PosOut, Some("RAW")) => value(0),
            (Kind::PosOut, Some("SCALED")) => self.setting(&format!("{full}.OFFSET")),
            (Kind::Bits(word), Some("BITS")) => {
                let names = model::bit_names();
                let named = (0..32).map(|bit| {
                    names.get(usize::from(word) * 32 + bit).cloned().unwrap_or_default()
                });
                lines(named)
            }
            (Kind::Table, Some("MAX_LENGTH")) => value(Settings::LONGEST_TABLE),
            (Kind::Table, Some("ROW_WORDS")) => value(model::ROW_WORDS),
            (Kind::Table, Some("LENGTH")) => {
                value(self.shared.lock().settings.lines(&full).map_or(0, <[String]>::len))
            }
            (Kind::Table, Some("FIELDS")) => lines(
                model::TABLE_FIELDS
                    .iter()
                    .map(|(bits, name, kind)| format!("{bits} {name} {kind}")),
            ),
            (Kind::Table, Some("B")) => {
                let state = self.shared.lock();
                let words = state.settings.lines(&full).unwrap_or_default().iter();
                let bytes: Vec<u8> =
                    words.flat_map(|word| word.parse::<u32>().unwrap_or(0).to_le_bytes()).collect();
                lines(base64(&bytes, BASE64_BYTES))
            }
            (Kind::Timestamp | Kind::Samples | Kind::Bits(_), None) => Err("Field not readable"),
            (_, None) => self.setting(&full),
            (_, Some(attribute)) => self.setting(&format!("{full}.{attribute}")),
        }
    }

    fn setting(&self, name: &str) -> Answer {
        let state = self.shared.lock();
        match (state.settings.text(name), state.settings.lines(name)) {
            (Some(text), _) => value(text),
            (_, Some(of_table)) => lines(of_table),
            _ => Err("No such attribute"),
        }
    }

    fn changes(&mut self, name: &str) -> Answer {
        let state = self.shared.lock();
        let mut changed = Vec::new();
        for (group, of_group) in groups(name)? {
            let mark = self.marks.insert(of_group, state.settings.changes).unwrap_or(0);
            changed.extend(state.settings.changed(group, mark));
        }
        lines(changed)
    }

    fn status(&self) -> Answer {
        let state = self.shared.lock();
        let busy = state.latest.as_ref().is_some_and(|acquisition| acquisition.end().is_none());
        let (readers, active) = (state.readers, state.active);
        value(format!("{} {readers} {active}", if busy { "Busy" } else { "Idle" }))
    }

    /// Samples and completion of the latest acquisition.
    fn captured(&self) -> (u64, String) {
        if let Some(dump) = &self.shared.plan.dump {
            return counted(dump);
        }
        self.shared.tell_of_end();
        match &self.shared.lock().latest {
            None => (0, "Ok".to_owned()),
            Some(acquisition) => match acquisition.end() {
                Some((samples, reason)) => (samples, reason.to_string()),
                None => (acquisition.written(), "Busy".to_owned()),
            },
        }
    }
}

/// The end of the last acquisition of a stored stream.
fn counted(dump: &[u8]) -> (u64, String) {
    let rest = dump.strip_prefix(b"OK\n".as_slice()).unwrap_or(dump);
    let mut decoder = Decoder::new();
    let _ = decoder.feed(b"OK\n");
    let (mut rest, mut missed) = (rest, 0);
    let mut last = (0, "Ok".to_owned());
    while !rest.is_empty() {
        let taken = match decoder.want() {
            Want::Payload { bytes } => {
                let taken = (bytes as usize).min(rest.len());
                decoder.payload_taken(taken as u64);
                taken
            }
            Want::Text { .. } => match decoder.feed(rest) {
                Ok((taken, event)) => {
                    match event {
                        Some(Event::Start { header, .. }) => missed = header.missed,
                        Some(Event::End { samples, reason }) => {
                            last = (missed + samples, reason.to_string());
                        }
                        _ => {}
                    }
                    taken
                }
                Err(_) => break,
            },
        };
        rest = &rest[taken..];
    }
    last
}

/// The groups that `*CHANGES` or `*CHANGES.ATTR` names.
fn groups(name: &str) -> Result<Vec<(Group, &'static str)>, &'static str> {
    let all = Group::ALL.into_iter();
    match name.strip_prefix("*CHANGES.") {
        None => Ok(all.collect()),
        Some(group) => {
            let one: Vec<_> = all.filter(|(_, known)| *known == group).collect();
            if one.is_empty() { Err("Invalid change group") } else { Ok(one) }
        }
    }
}

fn description(name: &str) -> Answer {
    if !name.contains('.') {
        return value(model::block(name)?.0.description);
    }
    if let Some((table, column)) = name.split_once("[].") {
        model::place(table)?;
        let known = model::TABLE_FIELDS.iter().any(|(_, known, _)| *known == column);
        return if known { value(format!("{column} of the line")) } else { Err("No such field") };
    }
    value(model::place(name)?.0.field.description)
}

fn labels(name: &str) -> Answer {
    if let Some((table, column)) = name.split_once("[].") {
        model::place(table)?;
        return if column == "TRIGGER" { lines(model::TABLE_TRIGGERS) } else { Err("No labels") };
    }
    let (place, attribute) = model::place(name)?;
    match (place.field.kind, attribute) {
        (Kind::Enum(names), None) => lines(names),
        (Kind::BitMux, None) => lines(model::bit_labels()),
        (Kind::Time, Some("UNITS")) => lines(Settings::TIME_UNITS),
        (Kind::PosOut, Some("CAPTURE")) => lines(MENU),
        (Kind::Timestamp | Kind::Samples | Kind::Bits(_), Some("CAPTURE")) => lines(&MENU[..2]),
        _ => Err("Field has no enumerations"),
    }
}

/// The words of a table in base64.
fn words(given: &[String]) -> Option<Vec<String>> {
    let bytes: Vec<u8> =
        given.iter().map(|line| from_base64(line)).collect::<Option<Vec<_>>>()?.concat();
    let (words, rest) = bytes.as_chunks::<4>();
    rest.is_empty()
        .then(|| words.iter().map(|word| u32::from_le_bytes(*word).to_string()).collect())
}
