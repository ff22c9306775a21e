//! The station: a daemon that starts and follows recordings, over REST and in a browser.
//!
//! ```text
//!  browsers, programs ──► http ──► recorder ──► fullbore record …   (processes of their own)
//!                          │  └──► jobs ──────► care::verify
//!                          └─────► store, care (lists, markers, protection, removal)
//!  the Field System ───► vsi ───► recorder
//! ```
//!
//! The daemon never touches a block: it starts recorders, reads what they print, and reads the store as every command
//! does. It holds nothing that a recording needs, so it can be killed, upgraded and started again while recordings go on
//! (`docs/decisions/0036-recorders-are-processes.md`). Beside `transfer`, this is the only crate with an async runtime;
//! only [`http`] uses it.

pub mod auth;
pub mod config;
pub mod http;
pub mod jobs;
pub mod recorder;
mod serve;
pub mod status;
pub mod vsi;

pub use config::Config;
pub use serve::{Error, Ready, serve};
