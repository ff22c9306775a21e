//! The station: a daemon that starts and follows recordings, over REST and in a browser.
//!
//! ```text
//!  browsers, programs ──► net ──► http ──► recorder ──► fullbore record …   (processes of their own)
//!                                  │  ├──► schedules ─────────▲
//!                                  │  ├──► jobs ──────► care::verify, fullbore bench disk …, fullbore VERB … (commands of clients)
//!                                  │  ├──► disks, machine (threads that look again and again), log
//!                                  └─────► store, care (lists, markers, protection, removal)
//!  station_file ──► settings, schedules, alerts ──► webhooks, programs
//!  the Field System ───► vsi ───► recorder
//!  other sites ─────────► transfers ─► the store; the queue ─► other sites, object stores
//! ```
//!
//! The daemon never touches a block: it starts recorders, reads what they print, and reads the store as every command
//! does. It holds nothing that a recording needs, so it can be killed, upgraded and started again while recordings go on
//! (`docs/decisions/0036-recorders-are-processes.md`). Beside `transfer`, this is the only crate with an async runtime;
//! only [`net`] and [`http`] use it, and each webhook has one of its own.

pub mod alerts;
pub mod auth;
mod bound;
pub mod config;
pub mod demo;
pub mod disks;
pub mod http;
pub mod jobs;
pub mod kept;
pub mod log;
pub mod machine;
pub mod net;
pub mod output_log;
pub mod recorder;
mod reload;
pub mod schedules;
mod serve;
pub mod settings;
pub mod station_file;
pub mod status;
pub mod systemd;
pub mod transfers;
pub mod vsi;

pub use config::Config;
pub use reload::Reloaded;
pub use serve::{Error, Ready, Told, serve};
