//! What a listener for transfers tells, as JSON and in words.

use std::net::SocketAddr;

use fullbore_core::name::ScanName;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_transfer::server::ServerEvent;
use serde::Serialize;

/// The characters of a key that tell known keys apart at a glance.
const SHORT_KEY: usize = 9;

/// An event of a listener. Each peer is named as it is named here.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum ListenerEvent {
    /// It listens.
    Listening {
        /// Its address.
        address: SocketAddr,
        /// The key of this site.
        key: String,
    },
    /// A known site connects.
    Connected {
        /// The site.
        peer: String,
        /// Its key.
        key: String,
        /// Its address.
        address: SocketAddr,
    },
    /// A connection is refused.
    Refused {
        /// Its address.
        address: SocketAddr,
        /// The reason.
        why: String,
    },
    /// A scan begins to arrive, or continues.
    Begun {
        /// The sender.
        peer: String,
        /// The scan.
        scan: String,
        /// True while it is being recorded there.
        live: bool,
        /// Its bytes so far.
        bytes: u64,
    },
    /// A scan is complete here.
    Received {
        /// The sender.
        peer: String,
        /// The scan.
        scan: String,
        /// Its bytes.
        bytes: u64,
        /// Bytes that arrived in this transfer.
        carried_bytes: u64,
        /// The time of this transfer.
        seconds: f64,
    },
    /// A scan is complete at a site that fetched it.
    Sent {
        /// The receiver.
        peer: String,
        /// The scan.
        scan: String,
        /// Its bytes.
        bytes: u64,
    },
    /// A transfer ended early.
    Failed {
        /// The site.
        peer: String,
        /// The scan, if it is known.
        scan: Option<String>,
        /// The reason.
        why: String,
    },
}

impl ListenerEvent {
    /// Of an event of the server. Progress is none.
    pub fn of(event: &ServerEvent) -> Option<Self> {
        let named = ScanName::to_string;
        Some(match event {
            ServerEvent::Connected { peer, key, address } => {
                Self::Connected { peer: peer.clone(), key: key.to_string(), address: *address }
            }
            ServerEvent::Begun { peer, scan, offered } => Self::Begun {
                peer: peer.clone(),
                scan: named(scan),
                live: offered.live,
                bytes: offered.bytes,
            },
            ServerEvent::Refused { address, why } => {
                Self::Refused { address: *address, why: why.clone() }
            }
            ServerEvent::Received { peer, scan, bytes, carried_bytes, time } => Self::Received {
                peer: peer.clone(),
                scan: named(scan),
                bytes: *bytes,
                carried_bytes: *carried_bytes,
                seconds: time.as_secs_f64(),
            },
            ServerEvent::Sent { peer, scan, bytes } => {
                Self::Sent { peer: peer.clone(), scan: named(scan), bytes: *bytes }
            }
            ServerEvent::Failed { peer, scan, why } => Self::Failed {
                peer: peer.clone(),
                scan: scan.as_ref().map(named),
                why: why.clone(),
            },
            ServerEvent::Receiving { .. } | ServerEvent::Sending { .. } => return None,
        })
    }

    /// The event in words.
    pub fn text(&self) -> String {
        match self {
            Self::Listening { address, key } => format!("listening at {address}, key {key}"),
            Self::Connected { peer, key, address } => {
                let short: String = key.chars().take(SHORT_KEY).collect();
                format!("{peer} (key {short}…) connects from {address}")
            }
            Self::Begun { peer, scan, live, bytes } => {
                let size = ByteSize(*bytes);
                match live {
                    true => {
                        format!("{scan} from {peer} begins: it is being recorded, {size} so far")
                    }
                    false => format!("{scan} from {peer} begins: {size}"),
                }
            }
            Self::Refused { address, why } => format!("{address} is refused: {why}"),
            Self::Received { peer, scan, bytes, carried_bytes, seconds } => {
                let rate = ByteRate((*carried_bytes as f64 / seconds.max(1e-3)) as u64);
                let (bytes, carried) = (ByteSize(*bytes), ByteSize(*carried_bytes));
                format!(
                    "{scan} from {peer} is complete, verified and durable: {bytes}, {carried} received in {seconds:.1} s ({rate})"
                )
            }
            Self::Sent { peer, scan, bytes } => {
                format!("{scan} is complete at {peer}: {}", ByteSize(*bytes))
            }
            Self::Failed { peer, scan: Some(scan), why } => {
                format!("{scan} ({peer}) was interrupted: {why}")
            }
            Self::Failed { peer, scan: None, why } => format!("{peer}: {why}"),
        }
    }
}
