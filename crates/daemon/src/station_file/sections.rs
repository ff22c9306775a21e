//! The other tables of the file: members, limits, tokens, users, inputs, schedules and alerts.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fullbore_core::hint::{Hint, with_causes};
use fullbore_core::name::Name;
use fullbore_core::schedule::{LARGEST, Schedule};
use fullbore_recording::RecordingOptions;
use rustix::fs::{Access, access};

use super::listen::short;
use super::reader::{Given, Keys};
use super::{FileSchedule, MOST_TABLES, ROLES, role};
use crate::alerts::{Alert, Kind, MOST_WORDS, Target};
use crate::auth::Hash;
use crate::auth::tokens::MOST_TOKENS;
use crate::recorder::request::{INPUT, MOST_SOURCES, StartRequest};
use crate::schedules::Options;
use crate::settings::{Settings, User};

/// The most members of a store in the file.
const MOST_MEMBERS: usize = 256;

const NAME: &str = "a name is 1 to 63 letters, digits, `-`, `+` and `_`";

pub(super) fn members(keys: &Keys<'_>, directory: &Path, settings: &mut Settings) -> Vec<PathBuf> {
    let Some(store) = keys.table("store", "[store]") else {
        let advice = "add [store] with members = [\"/mnt/disk0\"]";
        keys.fault(keys.line, "the file has no store", advice);
        return Vec::new();
    };
    let given = store.texts("members");
    if given.is_empty() || given.len() > MOST_MEMBERS {
        let what = format!("`members` names 1 to {MOST_MEMBERS} directories");
        store.fault(store.line_of("members"), what, "");
    }
    let mut members = Vec::new();
    for Given { value, line } in given {
        let path = directory.join(&value);
        if value.contains(',') {
            let what = format!("`members`: {}: the path of a member has no comma", short(&value));
            store.fault(line, what, "");
        } else if members.contains(&path) {
            store.fault(line, format!("`members` has {} twice", path.display()), "");
        } else if let Err(error) = access(&path, Access::WRITE_OK) {
            // A disk that has failed does not keep the others from recording.
            let what = format!("`members`: {}: {}", path.display(), std::io::Error::from(error));
            store.warn(
                line,
                what,
                "a member is a directory that the daemon can write, one on each disk",
            );
        }
        members.push(path);
    }
    if let Some(Given { value, line }) = store.text("exports") {
        let path = directory.join(&value);
        if let Err(error) = access(&path, Access::WRITE_OK) {
            let what = format!("`exports`: {}: {}", path.display(), std::io::Error::from(error));
            store.warn(line, what, "it is a directory that the daemon can write");
        }
        settings.exports = Some(path);
    }
    store.finish();
    members
}

pub(super) fn limits(keys: &Keys<'_>, settings: &mut Settings) {
    let Some(limits) = keys.table("limits", "[limits]") else { return };
    let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
    let count = |key, or: usize| {
        limits.number(key, 2..=100_000).map_or(or, |it| usize::try_from(it).unwrap_or(or))
    };
    settings.limits.total = count("connections", settings.limits.total);
    settings.limits.each = count("connections-per-address", settings.limits.each);
    if let Some(time) = limits.time("header-timeout", second..=hour) {
        settings.patience.head = time;
    }
    if let Some(time) = limits.time("body-timeout", second..=hour) {
        settings.patience.body = time;
    }
    settings.inputs_only = limits.flag("inputs-only");
    limits.finish();
}

pub(super) fn tokens(keys: &Keys<'_>, settings: &mut Settings) {
    for token in keys.tables("token", "[[token]]", MOST_TOKENS) {
        let name = name(&token);
        token.needs("role");
        let role = token.parsed("role", ROLES, role);
        token.needs("sha256");
        let advice = "it is what `printf %s TOKEN | sha256sum` prints";
        let hash = token.parsed("sha256", advice, |text| Hash::try_from(text.to_owned()));
        if let (Some(name), Some(role), Some(hash)) = (name, role, hash)
            && !settings.tokens.add(&name.value, role.value, hash.value)
        {
            let what =
                format!("the token `{}` is given twice, or has the secret of another", name.value);
            token.fault(name.line, what, "");
        }
        token.finish();
    }
}

pub(super) fn users(keys: &Keys<'_>, settings: &mut Settings) {
    for user in keys.tables("user", "[[user]]", MOST_TABLES) {
        user.needs("name");
        let named = user.text("name");
        user.needs("role");
        let role = user.parsed("role", ROLES, role);
        let given = user.number("uid", 0..=u64::from(u32::MAX - 1));
        let found = given.and_then(|it| u32::try_from(it).ok());
        let uid = found.or_else(|| uid_of(&named.as_ref()?.value));
        if let Some(Given { value, line }) = &named
            && uid.is_none()
        {
            let what = format!("this host has no user `{}`", short(value));
            user.fault(
                *line,
                what,
                "`name` is a login of /etc/passwd; for other users give `uid` too",
            );
        }
        if let (Some(named), Some(role), Some(uid)) = (named, role, uid) {
            match settings.users.iter().any(|it| it.uid == uid) {
                true => user.fault(named.line, format!("the user {uid} is given twice"), ""),
                false => {
                    let name = Arc::from(short(&named.value));
                    settings.users.push(User { name, uid, role: role.value });
                }
            }
        }
        user.finish();
    }
}

/// The number of a user, by /etc/passwd (passwd(5)).
fn uid_of(name: &str) -> Option<u32> {
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
    line.split(':').nth(2)?.parse().ok()
}

pub(super) fn inputs(keys: &Keys<'_>, settings: &mut Settings) {
    for input in keys.tables("input", "[[input]]", MOST_TABLES) {
        let name = name(&input);
        let given = input.texts("endpoints");
        if given.is_empty() || given.len() > MOST_SOURCES {
            let what = format!("`endpoints` has 1 to {MOST_SOURCES} endpoints");
            input.fault(
                input.line_of("endpoints"),
                what,
                "write \"udp://0.0.0.0:46220?format=vdif\"",
            );
        }
        for Given { value, line } in &given {
            if let Err((what, advice)) = endpoint(value) {
                input.fault(*line, format!("`endpoints`: {what}"), &advice);
            }
        }
        if let Some(Given { value, line }) = name {
            let endpoints = given.into_iter().map(|it| it.value).collect();
            if settings.inputs.insert(value.clone(), endpoints).is_some() {
                input.fault(line, format!("the input `{value}` is given twice"), "");
            }
        }
        input.finish();
    }
}

/// Checks an endpoint as `record` does.
fn endpoint(text: &str) -> Result<(), (String, String)> {
    let options = RecordingOptions {
        source: vec![text.to_owned()],
        store: vec![PathBuf::from("/")],
        session: Some("check".to_owned()),
        scan: Some("check".to_owned()),
        ..RecordingOptions::default()
    };
    let told = |error: fullbore_recording::OptionError| {
        let advice = error.hint().map(|it| it.into_owned()).unwrap_or_default();
        (with_causes(&error), advice)
    };
    options.resolve().map(drop).map_err(told)
}

pub(super) fn schedules(
    keys: &Keys<'_>,
    directory: &Path,
    settings: &Settings,
) -> Vec<FileSchedule> {
    let mut schedules: Vec<FileSchedule> = Vec::new();
    for table in keys.tables("schedule", "[[schedule]]", MOST_TABLES) {
        let name = name(&table);
        table.needs("file");
        let file = table.text("file");
        let station = table.text("station").map(|it| it.value);
        let text = |key| table.text(key).map(|it| it.value);
        let options = Options {
            source: table
                .texts("input")
                .into_iter()
                .map(|it| INPUT.to_owned() + &it.value)
                .collect(),
            session: text("session"),
            station: station.clone(),
            lead: text("lead"),
            buffer: text("buffer"),
            chunk: text("chunk"),
            redundancy: text("redundancy"),
        };
        let line = table.line_of("input");
        if options.source.is_empty() {
            table.fault(
                line,
                "`input` names the inputs of the schedule",
                "it is the name of an [[input]]",
            );
        }
        let request = StartRequest { source: options.source.clone(), ..StartRequest::default() };
        if let Err(error) = settings.endpoints(&request) {
            table.fault(line, format!("`input`: {error}"), "");
        } else if let Err(error) = options.check() {
            table.fault(table.line, error.to_string(), "");
        }
        if let (Some(Given { value: name, line }), Some(file)) = (name, file) {
            let path = directory.join(&file.value);
            if let Err((what, advice)) = scans(&path, station.as_deref(), &options) {
                table.fault(file.line, what, &advice);
            }
            if schedules.iter().any(|it| it.name == name) {
                table.fault(line, format!("the schedule `{name}` is given twice"), "");
            }
            schedules.push(FileSchedule { name, file: path, options });
        }
        table.finish();
    }
    schedules
}

/// Checks a file of scans.
fn scans(path: &Path, station: Option<&str>, options: &Options) -> Result<(), (String, String)> {
    let none = |what: String| (format!("{}: {what}", path.display()), String::new());
    let bytes = crate::schedules::read_bounded(path, LARGEST as u64);
    let bytes = bytes.map_err(|error| none(error.to_string()))?;
    let told = |error: fullbore_core::schedule::Error| {
        let advice = error.hint().map(|it| it.into_owned()).unwrap_or_default();
        (format!("{}: {}", path.display(), with_causes(&error)), advice)
    };
    let schedule = Schedule::read_bytes(&bytes, station).map_err(told)?;
    match schedule.session_name().map_err(told)?.is_some() || options.session.is_some() {
        true => Ok(()),
        false => Err((
            format!("{}: the schedule names no session", path.display()),
            "add `session` to the [[schedule]]".to_owned(),
        )),
    }
}

pub(super) fn alerts(keys: &Keys<'_>, directory: &Path) -> Vec<Alert> {
    let mut alerts: Vec<Alert> = Vec::new();
    let (second, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
    for table in keys.tables("alert", "[[alert]]", MOST_TABLES) {
        let name = name(&table);
        let mut on = BTreeSet::new();
        for Given { value, line } in table.texts("on") {
            match Kind::ALL.iter().find(|it| it.as_str() == value) {
                Some(kind) => {
                    on.insert(*kind);
                }
                None => {
                    let all: Vec<&str> = Kind::ALL.iter().map(|it| it.as_str()).collect();
                    let what = format!("`on`: there is no problem `{}`", short(&value));
                    table.fault(line, what, &format!("there are {}", all.join(", ")));
                }
            }
        }
        if !table.has("on") {
            on.extend(Kind::ALL);
        }
        let target = target(&table, directory);
        let timeout = table.time("timeout", second..=Duration::from_secs(60));
        let repeat = table.time("repeat", Duration::from_secs(60)..=day);
        if let (Some(Given { value: name, line }), Some(target)) = (name, target) {
            if alerts.iter().any(|it| it.name == name) {
                table.fault(line, format!("the alert `{name}` is given twice"), "");
            }
            let timeout = timeout.unwrap_or(crate::alerts::TIMEOUT);
            alerts.push(Alert { name, on, target, timeout, repeat });
        }
        table.finish();
    }
    alerts
}

fn target(table: &Keys<'_>, directory: &Path) -> Option<Target> {
    let webhook = table.parsed("webhook", "write \"https://HOST/PATH\"", |text| {
        let url = url::Url::parse(text).map_err(|error| error.to_string())?;
        match matches!(url.scheme(), "http" | "https") && url.has_host() {
            true => Ok(url.to_string()),
            false => Err("it is no address of http or https".to_owned()),
        }
    });
    let command = table.texts("command");
    match (webhook, table.has("webhook"), command.is_empty()) {
        (Some(url), _, true) => Some(Target::Webhook(url.value)),
        (None, true, true) => None,
        (None, false, false) => {
            let line = table.line_of("command");
            let words: Vec<String> = command.into_iter().map(|it| it.value).collect();
            let program = directory.join(&words[0]);
            let is_program = program.is_file() && words[0].contains('/');
            if !is_program || words.len() > MOST_WORDS {
                let what = format!("`command`: {} is no program", short(&words[0]));
                let advice = format!(
                    "write its path and up to {MOST_WORDS} words: [\"/usr/bin/mail\", \"-s\"]"
                );
                table.fault(line, what, &advice);
            }
            Some(Target::Command { program, words: words[1..].to_vec() })
        }
        _ => {
            let what = "an alert has either `webhook` or `command`";
            table.fault(table.line, what, "write one [[alert]] for each");
            None
        }
    }
}

fn name(table: &Keys<'_>) -> Option<Given<String>> {
    table.needs("name");
    let name = table.parsed("name", NAME, |text| text.parse::<Name>());
    name.map(|it| Given { value: it.value.to_string(), line: it.line })
}
