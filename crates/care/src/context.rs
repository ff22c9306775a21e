//! What context packets of VITA-49 say of the streams of a scan: from the manifest, or from the stored packets.

use fullbore_core::manifest::Format;
use fullbore_formats::packets::PacketKind;
use fullbore_formats::vita49::history::History;
use fullbore_formats::vita49::index::is_name_of_context;
use fullbore_formats::vita49::listing::{ListedChange, Listing};
use fullbore_store::read::{Settings, StartError};
use fullbore_store::reader::{Item, Scan, StoredStream};

/// The bytes of context that are read for one stream: about ten days of DIFI.
const MOST_BYTES: u64 = 1 << 30;

/// The values in the context packets of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContextValues {
    /// The first values of each stream id, and their changes.
    pub listing: Listing,
    /// True if later packets could not be read.
    pub is_cut: bool,
}

/// True if a stream has packets of context.
pub fn is_context(stream: &StoredStream) -> bool {
    stream.format == Format::Packets { kind: PacketKind::Vita49 }
        && is_name_of_context(stream.name.as_str())
}

/// Returns the values in a stream of context. Those of a scan that was not sealed are read from its packets.
pub fn values(scan: &Scan, stream: &StoredStream) -> Result<ContextValues, StartError> {
    let told = scan.manifest.streams.iter().find(|told| told.name.as_str() == stream.name.as_str());
    if let Some(listing) = told.and_then(|told| told.context.as_ref()) {
        return Ok(ContextValues { listing: (**listing).clone(), is_cut: false });
    }
    let mut history = History::default();
    let (mut bytes, mut whole) = (0, true);
    for item in stream.read(0..stream.blocks.len(), Settings::default())? {
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
    let is_cut = !whole || history.is_broken();
    Ok(ContextValues { listing: history.listing(), is_cut })
}

/// Returns the values of all stream ids of a scan. Streams of context that cannot be read tell nothing.
pub fn changes(scan: &Scan) -> Vec<ListedChange> {
    let streams = scan.streams.iter().filter(|stream| is_context(stream));
    let values = streams.filter_map(|stream| values(scan, stream).ok());
    values.flat_map(|values| values.listing.changes).collect()
}
