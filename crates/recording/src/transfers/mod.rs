//! Transfers between sites, as the command line and the station offer them: destinations by their scheme, and answers.
//!
//! ```text
//!  fullbore transfers, peers, receive ──┐                     ┌──► the queue (a folder)
//!                                       ├──► crate transfer ──┼──► keys, peers, invitations
//!  REST of the station ─────────────────┘        │            └──► the listener
//!                          answers, events ◄─────┘
//! ```

pub mod answers;
pub mod arrivals;
pub mod carrier;
pub mod events;

use fullbore_core::units::ByteRate;

/// The lowest rate of a transfer. Below it, the connections of a transfer would time out.
pub const LOWEST: ByteRate = ByteRate(12_500);

/// Parses a limit for transfers.
pub fn rate(text: &str) -> Result<ByteRate, String> {
    let rate: ByteRate = text.parse().map_err(|error| format!("{error}"))?;
    if rate < LOWEST {
        return Err(format!(
            "{rate} is too low for a transfer: {LOWEST} or more, for example 2Gbit/s"
        ));
    }
    Ok(rate)
}
