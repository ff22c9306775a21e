//! `[receive]` and `[transfers]`: the listener for other sites, and the queue.

use std::net::{IpAddr, SocketAddr};

use fullbore_recording::transfers::rate;
use fullbore_transfer::connect::MOST_CONNECTIONS;
use fullbore_transfer::governor::Window;
use fullbore_transfer::identity::{DEFAULT_PORT, Destination};

use super::listen::short;
use super::reader::{Given, Keys};
use crate::transfers::{LinkOptions, QueueOptions, ReceiveOptions};

/// The most transfers that run at once.
const MOST_SLOTS: u64 = 64;

/// The longest name of a congestion control (`TCP_CA_NAME_MAX` of Linux, without the zero at its end).
const LONGEST_CONGESTION: usize = 15;

pub(super) fn receive(keys: &Keys<'_>) -> Option<ReceiveOptions> {
    let keys = keys.table("receive", "[receive]")?;
    keys.needs("listen");
    let how =
        "write an IP address of this host, with or without a port: \"0.0.0.0\", \"[::]:4780\"";
    let listen = keys.parsed("listen", how, address);
    let how = "write HOST or HOST:PORT, as other sites reach this one";
    let name = keys.parsed("address", how, |text| {
        let site = format!("fullbore://{text}").parse::<Destination>();
        let site = site.map_err(|error| error.to_string())?;
        match site.invitation {
            None => Ok(site.address),
            Some(_) => Err("it is an invitation".to_owned()),
        }
    });
    let connections = keys.number("connections", 1..=u64::from(MOST_CONNECTIONS));
    let options = ReceiveOptions {
        listen: listen.map_or(SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)), |it| it.value),
        address: name.map(|it| it.value),
        connections: connections.and_then(|it| it.try_into().ok()).unwrap_or(MOST_CONNECTIONS),
        link: link(&keys),
    };
    keys.finish();
    Some(options)
}

pub(super) fn transfers(keys: &Keys<'_>) -> QueueOptions {
    let usual = QueueOptions::default();
    let Some(keys) = keys.table("transfers", "[transfers]") else { return usual };
    let slots = |key, or: usize| {
        keys.number(key, 1..=MOST_SLOTS).and_then(|it| it.try_into().ok()).unwrap_or(or)
    };
    let options = QueueOptions {
        run: if keys.has("run") { keys.flag("run") } else { usual.run },
        parallel: slots("parallel", usual.parallel),
        per_destination: slots("per-destination", usual.per_destination),
        link: link(&keys),
    };
    keys.finish();
    options
}

/// An address with or without a port.
fn address(text: &str) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(text);
    let alone = || bare.parse().ok().map(|ip: IpAddr| (ip, DEFAULT_PORT).into());
    let found = text.parse().ok().or_else(alone);
    found.ok_or_else(|| format!("`{}` is no address", short(text)))
}

/// How the transfers of a table use their link.
fn link(keys: &Keys<'_>) -> LinkOptions {
    let limit = keys.parsed("rate", "write it with its unit: \"2Gbit/s\"", rate);
    let window = keys.parsed(
        "window",
        "write the times of day in UTC: \"22:00-06:00\"",
        str::parse::<Window>,
    );
    let congestion = keys.parsed("congestion", "write \"bbr\" or \"cubic\"", |text| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        match (1..=LONGEST_CONGESTION).contains(&text.len()) && text.chars().all(plain) {
            true => Ok(text.to_owned()),
            false => Err("it is no name of a congestion control"),
        }
    });
    LinkOptions {
        rate: limit.map(|Given { value, .. }| value.0),
        window: window.map(|it| it.value),
        congestion: congestion.map(|it| it.value),
    }
}
