//! The context of a VITA-49 scan: frequencies, bandwidth, gain and rate of each stream id, and their changes.

use fullbore_care::context::{is_context, values};
use fullbore_formats::vita49::listing::Listing;
use fullbore_store::reader::{Scan, StoredStream};

/// Lists the values and the changes in the context streams of a scan.
pub(super) fn changes(scan: &Scan) -> String {
    let of_context = scan.streams.iter().filter(|stream| is_context(stream));
    of_context.map(|stream| of_stream(scan, stream)).collect()
}

fn lines(listing: &Listing) -> String {
    let mut text: String =
        listing.changes.iter().map(|change| format!("  context   {change}\n")).collect();
    if listing.unlisted > 0 {
        text += &format!("  context   {} more changes\n", listing.unlisted);
    }
    text
}

fn of_stream(scan: &Scan, stream: &StoredStream) -> String {
    match values(scan, stream) {
        Err(error) => format!("  context of {} cannot be read: {error}\n", stream.name),
        Ok(values) if values.is_cut => {
            let rest = format!("  context   later packets of {} were not read\n", stream.name);
            lines(&values.listing) + &rest
        }
        Ok(values) => lines(&values.listing),
    }
}
