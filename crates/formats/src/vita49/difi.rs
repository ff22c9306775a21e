//! The rules that DIFI (IEEE-ISTO 4900) adds to VITA-49.
//!
//! | packet | type | packet class | words |
//! |---|---|---|---|
//! | data | 1 | 0 | 7 and the samples |
//! | context | 4 | 1 | 27 (earlier devices: 18 or 21) |
//! | version | 5 | 4 | 11 |
//!
//! All have the class id 6A621E, seconds, and a fraction in picoseconds. None has a trailer.

use super::packet::{Fraction, Kind, Prologue};

/// The organization in the class id.
pub const OUI: u32 = 0x6A_621E;

/// The usual UDP port.
pub const PORT: u16 = 4991;

/// The packet class of data.
pub const DATA: u16 = 0;

/// The packet class of context.
pub const CONTEXT: u16 = 1;

/// The packet class of version.
pub const VERSION: u16 = 4;

/// The packet class of data with a sample count (DIFI 1.2).
pub const SAMPLE_COUNT: u16 = 3;

/// A rule that a packet breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The packet type is neither data with a stream id, nor context, nor version.
    #[error("its type is none of DIFI")]
    Type,
    /// The class id is absent or that of another organization.
    #[error("its class id is not that of DIFI (6A621E)")]
    Class,
    /// The packet has no seconds, or no picoseconds.
    #[error("its time is not seconds and picoseconds")]
    Time,
    /// The packet has a trailer.
    #[error("it has a trailer")]
    Trailer,
    /// The packet has another size than its class.
    #[error("it has {words} words")]
    Size {
        /// The size.
        words: u16,
    },
}

/// Checks a packet by the rules of DIFI.
pub fn check(prologue: &Prologue) -> Result<(), Broken> {
    let class = prologue.class.filter(|class| class.oui == OUI).ok_or(Broken::Class)?;
    let size = || Broken::Size { words: prologue.words };
    match (prologue.kind, prologue.stream) {
        (Kind::Data, Some(_)) => {}
        (Kind::Context, _) if class.packet == CONTEXT => {
            matches!(prologue.words, 18 | 21 | 27).then_some(()).ok_or_else(size)?;
        }
        (Kind::Context | Kind::Command | Kind::ExtensionCommand, _) => {}
        (Kind::ExtensionContext, _) if class.packet == VERSION => {
            (prologue.words == 11).then_some(()).ok_or_else(size)?;
        }
        _ => return Err(Broken::Type),
    }
    if prologue.has_trailer {
        return Err(Broken::Trailer);
    }
    let samples = class.packet == SAMPLE_COUNT && matches!(prologue.fraction, Fraction::Samples(_));
    let real = matches!(prologue.fraction, Fraction::Picoseconds(_)) && prologue.seconds.is_some();
    (real || samples).then_some(()).ok_or(Broken::Time)
}
