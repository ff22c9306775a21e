//! `fullbore record --to device:…`: the help of its endpoints, and refused addresses.

use fullbore_core::device::{BytesStream, DeviceEnd, Direction, Status};
use fullbore_core::endpoint::FileTarget;
use fullbore_core::pattern::PatternSource;
use fullbore_device::Error;
use fullbore_engine::recorder::RecordError;
use serde::Serialize;

use super::parameters_of;
use crate::output::Output;

/// The event for addresses that were refused.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Refusal {
    Refused { status: Status },
}

/// Reports refused addresses by their name.
pub(super) fn tell_of_addresses(error: &RecordError, output: Output) {
    if let RecordError::Device(error) = error
        && let Error::Address { source, .. } = error.as_ref()
        && output.json
    {
        let status = Status::refused(Direction::Write, source);
        // A closed output changes nothing: the error itself follows.
        let _ = output.tell(&Refusal::Refused { status }, String::new);
    }
}

/// The parameters of a device and of a pattern, for the help.
pub(super) fn parameters() -> String {
    let device = parameters_of("device:", DeviceEnd::PARAMETERS);
    let pattern = parameters_of("pattern:", PatternSource::PARAMETERS);
    let source = parameters_of("file:", BytesStream::FILE_PARAMETERS);
    let target = parameters_of("--to file:", FileTarget::PARAMETERS).replace(" source,", ",");
    [device, pattern, source, target].join("\n")
}
