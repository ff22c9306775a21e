//! `fullbore panda show`: the captured fields, and the trigger rate that the link carries.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Args as ClapArgs;
use fullbore_core::container;
use fullbore_engine::topology::{self, Link};
use fullbore_formats::panda::bandwidth::{self, Load};
use fullbore_formats::panda::control::{Captured, Client};
use fullbore_formats::panda::{Kind, general};
use fullbore_panda::ControlPort;
use serde::Serialize;

use super::{control, source};
use crate::hint::explained;
use crate::output::{FOUND, GOOD, Output, count};
use crate::verbs::record::panda::advice;

/// Show what a PandA captures: fields, types, scales, and the trigger rate that fits the link.
///
/// It also lists what slows the PandA down, as far as it can be seen from here: other clients, which take its CPU
/// time, and a link below 1 Gbit/s.
///
/// With --rate it says whether this trigger rate fits, and how to make it fit. Exit code 1: it does not fit.
#[derive(ClapArgs)]
pub struct Args {
    /// The PandA: an address, a name, or a panda:// endpoint.
    #[arg(value_name = "HOST")]
    host: String,
    /// Planned triggers per second, for example 1e6.
    #[arg(long, value_name = "N", value_parser = container::rate)]
    rate: Option<f64>,
    /// Also list the fields that are not captured.
    #[arg(long)]
    all: bool,
}

#[derive(Serialize)]
struct Shown {
    host: String,
    identity: String,
    version: Option<(u32, u32)>,
    clock_hz: Option<f64>,
    busy: bool,
    /// The local interface to the PandA.
    link: Option<Link>,
    /// The other clients, if the server reports them.
    other_clients: Option<Vec<Client>>,
    columns: Vec<Column>,
    sample_bytes: u32,
    /// Triggers per second that fill a link of 1 Gbit/s.
    most_samples_per_second: Option<f64>,
    load: Option<Load>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    capturable: Vec<String>,
}

#[derive(Serialize)]
struct Column {
    field: String,
    capture: String,
    kind: Kind,
    bytes: u32,
    scale: Option<f64>,
    offset: Option<f64>,
    units: Option<String>,
}

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let source = source(&args.host)?;
    let mut control = control(&source)?;
    let identity = control.identify().map_err(explained)?;
    let captured = control.captured_fields().map_err(explained)?;
    let capturable = if args.all { control.capturable().map_err(explained)? } else { Vec::new() };
    let planned = bandwidth::columns(&captured);
    let sample_bytes = bandwidth::sample_bytes(&planned);
    let columns: Vec<Column> =
        planned.into_iter().map(|planned| describe(&mut control, planned)).collect();
    let most =
        (sample_bytes > 0).then(|| bandwidth::LINK_BYTES_PER_SECOND / f64::from(sample_bytes));
    let shown = Shown {
        host: source.host,
        identity: identity.text,
        version: identity.version,
        clock_hz: control.clock_hz().map_err(explained)?,
        busy: control.status().map_err(explained)?.busy,
        link: control.made_from().and_then(|from| topology::link(Path::new("/"), from.ip())),
        other_clients: others(&mut control).map_err(explained)?,
        columns,
        sample_bytes,
        most_samples_per_second: most,
        load: args.rate.map(|rate| bandwidth::load(sample_bytes, rate)),
        capturable,
    };
    output.tell(&shown, || text(&shown, &captured))?;
    let fits = shown.load.is_none_or(|load| load.of_link <= 1.0);
    Ok(ExitCode::from(if fits { GOOD } else { FOUND }))
}

/// All clients except this program.
fn others(control: &mut ControlPort) -> Result<Option<Vec<Client>>, fullbore_panda::Error> {
    let us = control.made_from().map(|from| from.to_string());
    let others = |clients: Vec<Client>| {
        clients.into_iter().filter(|client| Some(&client.address) != us.as_ref()).collect()
    };
    Ok(control.clients()?.map(others))
}

/// The link speed in Mbit/s below which a PandA may be limited.
const FULL_LINK: u64 = 1000;

/// The causes of slowness that are visible from here.
fn surroundings(shown: &Shown) -> String {
    let mut text = String::new();
    if let Some(Link { interface, megabits }) = &shown.link {
        text += &match megabits {
            Some(megabits) if *megabits < FULL_LINK => format!(
                "through {interface} at {megabits} Mbit/s: a PandA can send 1 Gbit/s; look at the cable and the switch\n"
            ),
            Some(megabits) => format!("through {interface} at {megabits} Mbit/s\n"),
            None => format!("through {interface}, whose rate is unknown\n"),
        };
    }
    let Some(others) = &shown.other_clients else { return text };
    if others.is_empty() {
        return text + "no other client is connected\n";
    }
    let readers = others.iter().filter(|client| client.takes_data).count();
    let addresses: Vec<&str> = others.iter().map(|client| client.address.as_str()).collect();
    text += &format!(
        "{}, {readers} of them on the data port: {}\n  each client takes CPU time of the PandA: close those you do not need\n",
        count(others.len(), "other client"),
        addresses.join(", ")
    );
    let from = shown.link.as_ref().is_some_and(|link| link.interface != "lo");
    if from && others.iter().any(Client::is_on_the_panda) {
        text += "  one runs on the PandA itself, as panda-webcontrol does: its makers measured 50 MB/s with it and one \
                 browser, 60 MB/s without it\n";
    }
    text
}

/// A column with its scale, if it has one.
fn describe(control: &mut ControlPort, planned: bandwidth::Column) -> Column {
    let bandwidth::Column { field, capture, kind } = planned;
    let mut ask = |attribute: &str| control.value(&format!("{field}.{attribute}")).ok();
    let scale = ask("SCALE").and_then(|text| text.trim().parse().ok());
    // Time stamps, gates and bits have no scale to query.
    let (offset, units) = match scale {
        Some(_) => (ask("OFFSET").and_then(|text| text.trim().parse().ok()), ask("UNITS")),
        None => (None, None),
    };
    let bytes = kind.bytes();
    Column { field, capture, kind, bytes, scale, offset, units }
}

fn text(shown: &Shown, captured: &[Captured]) -> String {
    let mut text = format!("{}  {}\n", shown.host, shown.identity);
    let say = |text: &mut String, line: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = text.write_fmt(line);
    };
    if shown.busy {
        text += "an acquisition is going on\n";
    }
    text += &surroundings(shown);
    if captured.is_empty() {
        text +=
            "nothing is captured: set fields on its web page, or `FIELD.CAPTURE=` on port 8888\n";
        return text + &could_be(shown);
    }
    for column in &shown.columns {
        let capture =
            if column.capture.is_empty() { "(with the averages)" } else { &column.capture };
        let kind = format!("{:?}", column.kind).to_lowercase();
        say(&mut text, format_args!("  {:<24} {capture:<20} {kind:<7}", column.field));
        if let Some(scale) = column.scale {
            say(&mut text, format_args!(" × {}", general(scale, 12)));
        }
        if let Some(offset) = column.offset.filter(|&offset| offset != 0.0) {
            say(&mut text, format_args!(" + {}", general(offset, 12)));
        }
        say(&mut text, format_args!(" {}\n", column.units.as_deref().unwrap_or("")));
    }
    say(&mut text, format_args!("{} bytes a sample", shown.sample_bytes));
    if let Some(most) = shown.most_samples_per_second {
        say(&mut text, format_args!("; a link of 1 Gbit/s carries {most:.0} samples a second"));
    }
    text += "\n";
    if let Some(load) = shown.load {
        text += &advice(load);
    }
    text + &could_be(shown)
}

fn could_be(shown: &Shown) -> String {
    if shown.capturable.is_empty() {
        return String::new();
    }
    format!("could be captured: {}\n", shown.capturable.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(interface: &str, megabits: Option<u64>, clients: &[&str]) -> Shown {
        let client = |address: &&str| Client { takes_data: false, address: (*address).to_owned() };
        Shown {
            host: "172.23.252.201".to_owned(),
            identity: "PandA".to_owned(),
            version: None,
            clock_hz: None,
            busy: false,
            link: Some(Link { interface: interface.to_owned(), megabits }),
            other_clients: Some(clients.iter().map(client).collect()),
            columns: vec![],
            sample_bytes: 0,
            most_samples_per_second: None,
            load: None,
            capturable: vec![],
        }
    }

    #[test]
    fn a_link_below_a_gigabit_is_named_as_a_limit() {
        let told = |megabits| text(&shown("eth0", megabits, &[]), &[]);
        let limit = "through eth0 at 100 Mbit/s: a PandA can send 1 Gbit/s; look at the cable and the switch\n";
        assert!(told(Some(100)).contains(limit), "{}", told(Some(100)));
        for fast in [1000, 10_000] {
            assert!(told(Some(fast)).contains(&format!("through eth0 at {fast} Mbit/s\n")));
        }
        assert!(told(None).contains("through eth0, whose rate is unknown\n"));
    }

    #[test]
    fn a_client_on_the_panda_itself_is_named_with_its_price() {
        let told = |interface, clients: &[&str]| text(&shown(interface, None, clients), &[]);
        let there = told("eth0", &["10.0.0.9:40000", "127.0.0.1:41000"]);
        let price = "one runs on the PandA itself, as panda-webcontrol does: its makers measured 50 MB/s with it and one browser, 60 MB/s without it";
        assert!(there.contains(price), "{there}");
        assert!(!told("eth0", &["10.0.0.9:40000"]).contains("on the PandA itself"));
        // A simulated PandA on this host: clients on loopback are this host's.
        assert!(!told("lo", &["127.0.0.1:41000"]).contains("on the PandA itself"));
    }
}
