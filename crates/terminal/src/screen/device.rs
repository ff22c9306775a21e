//! Devices without a file system: their chunks before a recording, and its result on each.

use fullbore_core::device::Status;
use fullbore_core::units::ByteSize;
use fullbore_engine::recorder::MemberState;
use fullbore_engine::sink::device::DeviceResult;

/// The chunks of a device that may be written; none for a member of a disk set.
pub fn span(member: &MemberState) -> Option<String> {
    let span = member.span?;
    let buffered = match member.buffered {
        true => {
            "; it refuses direct I/O, and writing through the page cache takes far more CPU time"
        }
        false => "",
    };
    let (path, first, last) = (member.path.display(), span.first(), span.last());
    Some(format!("  {path}: chunks {first:#x} to {last:#x}{buffered}"))
}

/// The result on a device.
pub fn lines(result: &DeviceResult) -> String {
    let status = &result.status;
    let what = result.scan.as_ref().map_or("bare chunks".to_owned(), |scan| scan.name.to_string());
    let address = |address: Option<u64>| address.map_or("none".into(), |it| format!("{it:#x}"));
    let mut text = format!(
        "{what} on {}: {} in {:.2} s, {}/s\n  status    {}\n  addresses first {}, last {}\n  \
         durable   {}, longest write {:.1} ms, longest sync {:.1} ms\n",
        result.device.display(),
        ByteSize(result.bytes),
        result.seconds,
        ByteSize(result.rate),
        words(status),
        address(status.address_first),
        address(status.address_last),
        ByteSize(result.durable_bytes),
        result.longest_write_ns as f64 / 1e6,
        result.longest_sync_ns as f64 / 1e6,
    );
    for (bytes, what) in [
        (status.dropped_bytes, "held at the abort, and dropped"),
        (status.flushed_bytes, "discarded from the source after the end"),
    ] {
        if bytes > 0 {
            text += &format!("  {} {what}\n", ByteSize(bytes));
        }
    }
    if result.full && result.scan.is_some() {
        text += "  the device is full: later data is not on it\n";
    }
    if let Some(rate) = result.held_up {
        text += &format!("  the device did not sustain the requested {rate}\n");
    }
    if result.bytes == 0 {
        text += "  no data came: nothing was written\n";
    } else if result.early {
        text += "  the source ended early\n";
    }
    if let Some(failure) = &result.failure {
        text += &format!("  {failure}\n");
    }
    text
}

/// The status in words, and the last captured address.
pub fn words(status: &Status) -> String {
    let words: Vec<&str> = status.words.iter().map(|word| word.as_str()).collect();
    let last = status.captured_last.map_or("none".into(), |address| format!("{address:#x}"));
    format!("{}, captured last {last}", words.join(" "))
}
