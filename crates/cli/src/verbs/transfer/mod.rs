//! `send`, `receive`, `transfers` and `peers`: scans to and from other sites and object stores.

mod etransfer;
mod objects;
pub mod peers;
mod progress;
pub mod receive;
pub mod send;
pub mod transfers;
mod tsunami;

use clap::Args as Arguments;
use fullbore_core::units::ByteRate;
use fullbore_recording::transfers::rate;
use fullbore_transfer::channel::LinkSettings;
use fullbore_transfer::error::TransferError;
use fullbore_transfer::governor::{Limits, Window};
use fullbore_transfer::queue::job::Wishes;

use progress::ProgressLine;

/// How a transfer uses its link.
#[derive(Arguments, Clone, Debug)]
pub struct LinkArgs {
    /// The most that transfers send or fetch together, for example 2Gbit/s.
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = "Link")]
    rate: Option<ByteRate>,
    /// The time of day in which transfers send or fetch, UTC: 22:00-06:00.
    #[arg(long, value_name = "FROM-UNTIL", help_heading = "Link")]
    window: Option<Window>,
    /// Congestion control of the connections [default: the system's; on a WAN cubic, and bbr where losses hold that down].
    #[arg(long, value_name = "NAME", help_heading = "Link")]
    congestion: Option<String>,
}

impl LinkArgs {
    fn limits(&self) -> Limits {
        Limits { rate: self.rate.map(|rate| rate.0), window: self.window }
    }

    fn wishes(&self, priority: i32) -> Wishes {
        Wishes { priority, rate: self.rate.map(|rate| rate.0), window: self.window }
    }

    fn settings(&self) -> LinkSettings {
        LinkSettings { congestion: self.congestion.clone(), rate: None }
    }
}

/// True if other scans may fare better, or the transfer was under way.
fn is_about_this_scan(error: &TransferError) -> bool {
    use TransferError::{Channel, Identity, UnknownSite};
    !matches!(error, Identity(_) | Channel(_) | UnknownSite { .. })
}
