//! Checks the packets of VITA-49 in a block: each has the length that the index says, and belongs to the stream. If the
//! account lacks none, their counts and times follow one another.
//!
//! ```text
//! block k     …│ packet │ packet │ pack         the index has the lengths of packets that begin in a block
//! block k + 1  et │ packet │ …                  the bytes before the first one belong to a packet of block k
//! ```
//!
//! Blocks are checked in any order, so the counts are compared within a block.

use std::ops::Range;

use fullbore_core::account::Account;
use fullbore_core::index::Block;
use fullbore_core::manifest::Format;
use fullbore_formats::packets::{PacketKind, PacketReading};
use fullbore_formats::vita49::index::{PacketIndexer, PacketStream};
use fullbore_formats::vita49::{Packet, Prologue};
use fullbore_store::reader::{Presence, Scan, StoredStream};

use super::walk::Walk;

/// For each block of a stream, the bytes at its start that belong to a packet of the block before. Empty if the stream
/// has no packets of VITA-49. It ends where lengths are missing.
pub(super) fn carries(scan: &Scan, stream: &StoredStream) -> Vec<u32> {
    let mut carries = Vec::new();
    if stream.format != (Format::Packets { kind: PacketKind::Vita49 }) {
        return carries;
    }
    let mut carry = 0;
    for location in &stream.blocks {
        carries.push(carry);
        let whole = location.presence == Presence::Whole;
        let Some(lengths) = whole.then(|| scan.lengths(location).ok()).flatten() else { break };
        let begun: u64 = lengths.iter().copied().map(u64::from).sum();
        let over = (u64::from(carry) + begun).checked_sub(location.block.bytes.into());
        match over.and_then(|over| u32::try_from(over).ok()) {
            Some(over) if lengths.len() == location.block.frames as usize => carry = over,
            _ => break,
        }
    }
    carries
}

/// True if the account says that the packets of a stream are complete and in order.
fn is_gapless(account: Option<&Account>) -> bool {
    account.is_some_and(|account| {
        let Account { reordered, restarts, disagreements, .. } = account;
        account.terms.written == account.terms.expected && reordered + restarts + disagreements == 0
    })
}

/// The places of the packets that begin in a block, with the lengths that the index says.
fn places(carry: u32, lengths: &[u16]) -> impl Iterator<Item = Range<usize>> {
    let mut start = carry as usize;
    lengths.iter().map(move |length| {
        let end = start + usize::from(*length);
        std::mem::replace(&mut start, end)..end
    })
}

/// Checks the packets that begin in a block. Of one that ends in the next block, the header is checked.
pub(super) fn check(
    block: &Block,
    carry: u32,
    lengths: &[u16],
    account: Option<&Account>,
    bytes: &[u8],
) -> Walk {
    let mut walk = Walk::default();
    let mut of_block: Option<PacketStream> = None;
    let mut indexer: Option<PacketIndexer> = None;
    let mut expected = None;
    for (number, place) in (block.first..).zip(places(carry, lengths)) {
        let says = place.len();
        let here = &bytes[place.start.min(bytes.len())..place.end.min(bytes.len())];
        let prologue = match Packet::read(here) {
            Ok(packet) => packet.prologue,
            // Its end is in the next block, and perhaps a part of its header too.
            Err(_) if here.len() < says => {
                match Prologue::read(here) {
                    Ok(prologue) if 4 * usize::from(prologue.words) == says => prologue,
                    Ok(prologue) => {
                        let words = 4 * usize::from(prologue.words);
                        walk.bad.add(|| {
                        format!("packet {number}: its header states {words} bytes, and the index {says}")
                    });
                        continue;
                    }
                    Err(_) => continue,
                }
            }
            Err(error) => {
                walk.bad.add(|| format!("packet {number}: {error}"));
                continue;
            }
        };
        let packets = PacketStream::of(&prologue);
        if *of_block.get_or_insert(packets) != packets {
            walk.bad.add(|| format!("packet {number}: it belongs to another stream ({packets})"));
            continue;
        }
        if !prologue.kind.is_data() || !is_gapless(account) || here.len() < says {
            continue;
        }
        let of_first = || PacketIndexer::of(here).expect("its header was read");
        let indexer = indexer.get_or_insert_with(of_first);
        if let PacketReading::Whole { index, .. } = indexer.read(here, says) {
            if expected.is_some_and(|expected| expected != index) {
                walk.misplaced
                    .add(|| format!("packet {number}: its count or time does not follow"));
            }
            expected = Some(index + 1);
        }
        indexer.learn(here);
    }
    walk
}

#[cfg(test)]
mod tests {
    use fullbore_core::account::CountedBy;
    use fullbore_formats::vita49::Kind;
    use fullbore_formats::vita49::write::{Stamp, difi_prologue, prologue};
    use fullbore_time::Tai;

    use super::*;

    const BYTES: usize = 44;

    fn packet(id: u32, number: u64) -> Vec<u8> {
        let stamp = Stamp { seconds: 1_700_000_000, picoseconds: number * 360_000_000 };
        let start = difi_prologue(Kind::Data, id, stamp, (number % 16) as u8, 4);
        let mut packet = vec![0; BYTES];
        prologue(&start, &mut packet).unwrap();
        packet
    }

    fn block(frames: u32, bytes: usize) -> Block {
        Block {
            sequence: 1,
            first: 100,
            frames,
            present: frames,
            invalid: 0,
            crc: 0,
            chunk: 0,
            offset: 0,
            bytes: bytes as u32,
            time: None,
            seen: Tai(0),
        }
    }

    fn account(missing: u64) -> Account {
        let mut account = Account::new(CountedBy::FrameTime);
        (account.terms.expected, account.terms.written) = (40 + missing, 40);
        account.terms.missing = missing;
        account
    }

    fn found(packets: &[Vec<u8>], carry: u32, cut: usize, account: &Account) -> Walk {
        let mut bytes = vec![0xFF; carry as usize];
        bytes.extend(packets.concat());
        bytes.truncate(bytes.len() - cut);
        let block = block(packets.len() as u32, bytes.len());
        check(&block, carry, &vec![BYTES as u16; packets.len()], Some(account), &bytes)
    }

    fn run(numbers: impl Iterator<Item = u64>) -> Vec<Vec<u8>> {
        numbers.map(|number| packet(7, number)).collect()
    }

    #[test]
    fn whole_packets_are_good_wherever_the_block_cuts_the_last() {
        for cut in 0..BYTES {
            let walk = found(&run(0..40), 13, cut, &account(0));
            assert_eq!((walk.bad.count, walk.misplaced.count), (0, 0), "{cut}");
        }
    }

    #[test]
    fn every_broken_size_and_stream_id_is_named() {
        for at in 0..40 {
            let mut packets = run(0..40);
            packets[at][3] += 1;
            let walk = found(&packets, 0, 0, &account(0));
            assert_eq!(walk.bad.count, 1);
            let why = walk.bad.why.unwrap();
            assert!(
                why.contains(&format!("packet {}: ", 100 + at)) && why.contains("48 bytes"),
                "{why}"
            );
        }
        let mut packets = run(0..40);
        packets[5] = packet(8, 5);
        assert!(found(&packets, 0, 0, &account(0)).bad.why.unwrap().contains("packet 105"));
        let mut cut = run(0..3);
        cut[2][3] += 1;
        assert!(found(&cut, 0, 4, &account(0)).bad.why.unwrap().contains("states 48 bytes"));
    }

    #[test]
    fn a_hole_is_told_unless_the_account_has_losses() {
        let gap = || run((0..20).chain(36..56));
        assert_eq!(found(&gap(), 0, 0, &account(0)).misplaced.count, 1);
        assert_eq!(found(&gap(), 0, 0, &account(16)).misplaced.count, 0);
        let mut count = run(0..40);
        count[9][1] ^= 0x02;
        assert!(found(&count, 0, 0, &account(0)).misplaced.count > 0);
    }
}
