//! The context of a VITA-49 scan: frequencies, bandwidth, gain and rate of each stream id, and their changes.

use fullbore_core::manifest::Format;
use fullbore_formats::packets::PacketKind;
use fullbore_formats::vita49::history::History;
use fullbore_formats::vita49::listing::Listing;
use fullbore_store::read::Settings;
use fullbore_store::reader::{Item, Scan, StoredStream};

/// The bytes of context that are read for one stream: about ten days of DIFI.
const MOST_BYTES: u64 = 1 << 30;

/// The end of the names of streams of context.
const NAME: &str = "-context";

/// Lists the values and the changes in the context streams of a scan.
pub(super) fn changes(scan: &Scan) -> String {
    let of_context = |stream: &&StoredStream| {
        stream.format == Format::Packets { kind: PacketKind::Vita49 }
            && stream.name.as_str().contains(NAME)
    };
    scan.streams.iter().filter(of_context).map(|stream| of_stream(scan, stream)).collect()
}

fn lines(listing: &Listing) -> String {
    let mut text: String =
        listing.changes.iter().map(|change| format!("  context   {change}\n")).collect();
    if listing.unlisted > 0 {
        text += &format!("  context   {} more changes\n", listing.unlisted);
    }
    text
}

/// Takes the values from the manifest. Those of a scan that was not sealed are read from its packets.
fn of_stream(scan: &Scan, stream: &StoredStream) -> String {
    let told = scan.manifest.streams.iter().find(|told| told.name.as_str() == stream.name.as_str());
    if let Some(listing) = told.and_then(|told| told.context.as_ref()) {
        return lines(listing);
    }
    let mut history = History::default();
    let (mut bytes, mut whole) = (0, true);
    let blocks = match stream.read(0..stream.blocks.len(), Settings::default()) {
        Ok(blocks) => blocks,
        Err(error) => return format!("  context of {} cannot be read: {error}\n", stream.name),
    };
    for item in blocks {
        let Item::Block(block) = item else {
            whole = false;
            break;
        };
        bytes += block.bytes().len() as u64;
        if bytes > MOST_BYTES {
            whole = false;
            break;
        }
        history.feed(block.bytes());
    }
    let mut text = lines(&history.listing());
    if !whole || history.is_broken() {
        text += &format!("  context   later packets of {} were not read\n", stream.name);
    }
    text
}
