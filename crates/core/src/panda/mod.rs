//! A PandA in a recording: its endpoint, its events, and the account of an acquisition.
//!
//! - [`source`]: the `panda://host` endpoint
//! - [`acquisition_account`]: the account of an acquisition, over all its connections
//! - [`SourceEvent`]: what its capture tells besides the acquisitions

pub mod acquisition_account;
mod event;
mod notes;
pub mod source;

pub use acquisition_account::{AcquisitionAccount, AcquisitionResult};
pub use event::{SourceEvent, SourceReport};
pub use source::PandaSource;
