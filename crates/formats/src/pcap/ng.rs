//! The blocks of a pcapng file.
//!
//! ```text
//! block      type 4 · total length 4 · body, padded to 4 · total length 4
//! section    0x0A0D0D0A · byte order 0x1A2B3C4D · version 2 + 2 · section length 8 · options
//! interface  1 · link type 2 · 0 · snapshot length 4 · options (9: resolution, 14: offset)
//! packet     6 · interface 4 · time high 4 · time low 4 · captured 4 · original 4 · packet · options (4: dropped)
//! simple     3 · original 4 · packet
//! obsolete   2 · interface 2 · drops 2 · time high 4 · time low 4 · captured 4 · original 4 · packet · options
//! statistics 5 · interface 4 · time 8 · options (5: drops of the interface, 7: of the system)
//! ```

use super::decoder::{Item, Packet, Step, version};
use super::{Error, LONGEST_BLOCK, LONGEST_PACKET, LinkType, MOST_INTERFACES, Order};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE: u32 = 2;
const SIMPLE: u32 = 3;
const STATISTICS: u32 = 5;
const ENHANCED: u32 = 6;

/// The byte order mark of a section.
const ORDER_MARK: u32 = 0x1a2b_3c4d;

/// Bytes of type and length before a body, and of the length behind it.
const AROUND: usize = 12;

/// The interfaces of the section that is being read.
#[derive(Clone, Debug, Default)]
pub(super) struct Sections {
    order: Option<Order>,
    /// Sections that have begun.
    begun: u32,
    interfaces: Vec<Interface>,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: LinkType,
    snapshot: u32,
    ticks: Ticks,
    offset_seconds: i64,
}

/// The unit of time stamps.
#[derive(Clone, Copy, Debug)]
enum Ticks {
    /// 10 to this power in a second.
    Decimal(u32),
    /// 2 to this power in a second.
    Binary(u32),
}

impl Ticks {
    /// Reads `if_tsresol`.
    fn of(code: u8) -> Result<Self, Error> {
        let power = u32::from(code & 0x7f);
        match code & 0x80 {
            0 if power <= 18 => Ok(Self::Decimal(power)),
            0x80 if power <= 63 => Ok(Self::Binary(power)),
            _ => Err(Error::Resolution { code }),
        }
    }

    fn nanoseconds(self, ticks: u64) -> i128 {
        let ns = i128::from(ticks) * 1_000_000_000;
        match self {
            Self::Decimal(power) => ns / 10i128.pow(power),
            Self::Binary(power) => ns >> power,
        }
    }
}

impl Sections {
    /// The first bytes of a file, in either byte order.
    pub const FIRST: [u8; 4] = SECTION.to_be_bytes();

    pub fn next(&mut self, buffer: &[u8]) -> Result<Step, Error> {
        let Some(first) = buffer.first_chunk::<4>() else { return Ok(Step::More(AROUND)) };
        if *first == Self::FIRST {
            return self.section(buffer);
        }
        // A file begins with a section.
        let Some(order) = self.order else {
            return Err(Error::Magic { magic: u32::from_be_bytes(*first) });
        };
        let (Some(kind), Some(bytes)) = (order.u32(buffer, 0), order.u32(buffer, 4)) else {
            return Ok(Step::More(AROUND));
        };
        if bytes < AROUND as u32 || bytes % 4 != 0 {
            return Err(Error::BlockLength { kind, bytes });
        }
        let whole = matches!(kind, INTERFACE | OBSOLETE | SIMPLE | STATISTICS | ENHANCED);
        if !whole {
            return Ok(Step::Item { item: Item::Other, bytes: bytes.into() });
        }
        let body = match self.block(buffer, kind, bytes, order)? {
            Some(body) => body,
            None => return Ok(Step::More(bytes as usize)),
        };
        let item = match kind {
            INTERFACE => self.interface(order, body)?,
            STATISTICS => self.statistics(order, body)?,
            ENHANCED => self.enhanced(order, body)?,
            OBSOLETE => self.obsolete(order, body)?,
            _ => self.simple(order, body)?,
        };
        Ok(Step::Item { item, bytes: bytes.into() })
    }

    /// Returns the body of a block, if all of it is in the buffer, after comparing both of its lengths.
    fn block<'a>(
        &self,
        buffer: &'a [u8],
        kind: u32,
        bytes: u32,
        order: Order,
    ) -> Result<Option<&'a [u8]>, Error> {
        if bytes > LONGEST_BLOCK {
            return Err(Error::BlockLength { kind, bytes });
        }
        let Some(block) = buffer.get(..bytes as usize) else { return Ok(None) };
        match order.u32(block, block.len() - 4) {
            Some(again) if again == bytes => Ok(Some(&block[8..block.len() - 4])),
            again => Err(Error::BlockLength { kind, bytes: again.unwrap_or(0) }),
        }
    }

    fn section(&mut self, buffer: &[u8]) -> Result<Step, Error> {
        let (Some(big), Some(little)) = (Order::Big.u32(buffer, 8), Order::Little.u32(buffer, 8))
        else {
            return Ok(Step::More(28));
        };
        let order = match (big, little) {
            (ORDER_MARK, _) => Order::Big,
            (_, ORDER_MARK) => Order::Little,
            _ => return Err(Error::Magic { magic: big }),
        };
        let bytes = order.u32(buffer, 4).unwrap_or(0);
        if bytes < 28 || bytes % 4 != 0 {
            return Err(Error::BlockLength { kind: SECTION, bytes });
        }
        let Some(body) = self.block(buffer, SECTION, bytes, order)? else {
            return Ok(Step::More(bytes as usize));
        };
        version(order, body, 4, 1)?;
        (self.order, self.begun) = (Some(order), self.begun.saturating_add(1));
        self.interfaces.clear();
        Ok(Step::Item { item: Item::Other, bytes: bytes.into() })
    }

    fn interface(&mut self, order: Order, body: &[u8]) -> Result<Item, Error> {
        let missing = |field| Error::BlockField { kind: INTERFACE, field };
        let link = order.u16(body, 0).ok_or(missing("link type"))?;
        let snapshot = order.u32(body, 4).ok_or(missing("snapshot length"))?;
        let mut interface = Interface {
            link: LinkType::of_number(link.into()),
            snapshot,
            ticks: Ticks::Decimal(6),
            offset_seconds: 0,
        };
        for (code, value) in options(order, &body[8..]) {
            match (code, value) {
                (9, [resolution, ..]) => interface.ticks = Ticks::of(*resolution)?,
                (14, value) => {
                    let offset = order.u64(value, 0).ok_or(missing("time offset"))?;
                    interface.offset_seconds = offset as i64;
                }
                _ => {}
            }
        }
        if self.interfaces.len() >= MOST_INTERFACES {
            return Err(Error::Interfaces);
        }
        self.interfaces.push(interface);
        Ok(Item::Other)
    }

    fn statistics(&self, order: Order, body: &[u8]) -> Result<Item, Error> {
        let missing = |field| Error::BlockField { kind: STATISTICS, field };
        let interface = order.u32(body, 0).ok_or(missing("interface"))?;
        let rest = body.get(12..).ok_or(missing("time"))?;
        let told = |wanted: u16| {
            let found = options(order, rest).find(|(code, _)| *code == wanted);
            found.and_then(|(_, value)| order.u64(value, 0))
        };
        let (by_interface, by_system) = (told(5), told(7));
        let section = self.begun.saturating_sub(1);
        Ok(Item::Drops { section, interface, by_interface, by_system })
    }

    fn enhanced(&self, order: Order, body: &[u8]) -> Result<Item, Error> {
        let missing = |field| Error::BlockField { kind: ENHANCED, field };
        let word = |number: usize| order.u32(body, 4 * number).ok_or(missing("header"));
        let [interface, high, low, captured, original] =
            [word(0)?, word(1)?, word(2)?, word(3)?, word(4)?];
        let packet = self.packet(interface, Some((high, low)), [captured, original])?;
        let end = 20 + captured as usize;
        let packed = body.get(20..end).ok_or(missing("packet"))?;
        let after = body.get(20 + packed.len().next_multiple_of(4)..).unwrap_or_default();
        let dropped = options(order, after).find(|(code, _)| *code == 4);
        let dropped = dropped.and_then(|(_, value)| order.u64(value, 0));
        Ok(Item::Packet(Packet { data: 28..8 + end, dropped, ..packet }))
    }

    fn obsolete(&self, order: Order, body: &[u8]) -> Result<Item, Error> {
        let missing = |field| Error::BlockField { kind: OBSOLETE, field };
        let interface = order.u16(body, 0).ok_or(missing("interface"))?;
        // 0xFFFF: the number of drops is not known.
        let dropped = order.u16(body, 2).ok_or(missing("drops"))?;
        let word = |number: usize| order.u32(body, 4 * number).ok_or(missing("header"));
        let [high, low, captured, original] = [word(1)?, word(2)?, word(3)?, word(4)?];
        let packet = self.packet(interface.into(), Some((high, low)), [captured, original])?;
        let end = 20 + captured as usize;
        body.get(20..end).ok_or(missing("packet"))?;
        let dropped = Some(u64::from(dropped)).filter(|dropped| *dropped != 0xffff);
        Ok(Item::Packet(Packet { data: 28..8 + end, dropped, ..packet }))
    }

    fn simple(&self, order: Order, body: &[u8]) -> Result<Item, Error> {
        let missing = |field| Error::BlockField { kind: SIMPLE, field };
        let original = order.u32(body, 0).ok_or(missing("length"))?;
        let snapshot = self.interfaces.first().map_or(0, |interface| interface.snapshot);
        let most = if snapshot == 0 { original } else { original.min(snapshot) };
        let captured = most.min(body.len() as u32 - 4);
        let packet = self.packet(0, None, [captured, original])?;
        Ok(Item::Packet(Packet { data: 12..12 + captured as usize, ..packet }))
    }

    fn packet(
        &self,
        interface: u32,
        time: Option<(u32, u32)>,
        [captured, original]: [u32; 2],
    ) -> Result<Packet, Error> {
        if captured > LONGEST_PACKET {
            return Err(Error::PacketLength { bytes: captured });
        }
        let known = self.interfaces.get(interface as usize);
        let known = known.ok_or(Error::Interface { interface })?;
        let unix_ns = time.map(|(high, low)| {
            let ticks = u64::from(high) << 32 | u64::from(low);
            known.ticks.nanoseconds(ticks) + i128::from(known.offset_seconds) * 1_000_000_000
        });
        Ok(Packet { link: known.link, unix_ns, interface, data: 0..0, original, dropped: None })
    }
}

/// The options of a block: code and value. Options that do not fit their block are not returned.
fn options(order: Order, bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (code, length) = (order.u16(rest, 0)?, usize::from(order.u16(rest, 2)?));
        let value = rest.get(4..4 + length)?;
        rest = rest.get(4 + length.next_multiple_of(4)..).unwrap_or_default();
        (code != 0).then_some((code, value))
    })
}
