//! Makes the datagram of a place: a new header, and a prepared payload.

use std::ops::Range;

use fullbore_core::pattern::mixed;
use fullbore_formats::framed::{FrameCodec, FrameKind};
use fullbore_formats::sequence::Field;
use fullbore_formats::vdif::{Extended, Header, Second, mark5b};
use fullbore_formats::vita49::packet::PICOSECONDS;
use fullbore_formats::vita49::write::Stamp;

use super::fault::{Damage, Event, Faults, What};
use super::payload::{Payloads, SPARE_BYTES};
use super::truth::Done;
use super::{Form, PacketForm};

/// Room for the longest head: a context packet.
pub const HEAD_BYTES: usize = 128;

/// The bytes at the start of a raw datagram that can hold its number.
pub const NUMBERED_BYTES: usize = 64;

/// Bytes of a packet number.
const NUMBER_BYTES: usize = Field::PSN.width;

/// Makes the datagrams of one port.
#[derive(Debug)]
pub struct Maker {
    form: Form,
    threads: Vec<u16>,
    frames_per_second: u64,
    /// The second that contains place 0.
    first_second: Second,
    /// Number of place 0.
    first_number: i64,
    /// Number of the payload of place 0.
    payload_shift: u64,
    /// The rules for wrong second counts.
    faults: Faults,
}

/// A datagram without its header, which was written to the caller's buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Bytes of the header.
    pub head: usize,
    /// Number of the payload that follows.
    pub payload: u64,
    /// Start of the part of the payload that is sent.
    pub from: usize,
    /// End of that part.
    pub to: usize,
}

impl Made {
    /// The part of the payload that follows the header.
    #[inline]
    pub fn payload<'a>(&self, payloads: &'a Payloads) -> &'a [u8] {
        let Range { start, end } = self.from..self.to;
        payloads.cut(self.payload, end).get(start..).unwrap_or(&[])
    }
}

impl Maker {
    /// For a port whose place 0 is frame 0 of `first_second`.
    pub fn new(
        form: Form,
        threads: &[u16],
        frames_per_second: u64,
        first_second: Second,
        first_number: i64,
        payload_shift: u64,
    ) -> Self {
        let threads = threads.to_vec();
        let faults = Faults::default();
        Maker {
            form,
            threads,
            frames_per_second,
            first_second,
            first_number,
            payload_shift,
            faults,
        }
    }

    /// Adds wrong second counts according to these rules.
    pub fn miscounting(self, faults: Faults) -> Self {
        Maker { faults, ..self }
    }

    /// True if the second count of a place is wrong.
    pub fn miscounts(&self, place: u64) -> bool {
        self.faults.miscounts(place)
    }

    /// Index and thread of a place.
    #[inline]
    pub fn frame_of(&self, place: u64) -> (u64, u16) {
        match self.threads.as_slice() {
            [one] => (place, *one),
            several => {
                let count = several.len() as u64;
                (place / count, several[(place % count) as usize])
            }
        }
    }

    /// Makes the datagram of an event, or `None` if the event sends none. Also returns the entry for the truth after
    /// sending.
    #[inline]
    pub fn make(
        &self,
        event: Event,
        payloads: &Payloads,
        head: &mut [u8; HEAD_BYTES],
    ) -> (Done, Option<Made>) {
        let whole = |head: &mut [u8; HEAD_BYTES]| Some(self.whole(event.place, payloads, head));
        match event.what {
            What::Sent => (Done::Sent { late: false }, whole(head)),
            What::SentLate => (Done::Sent { late: true }, whole(head)),
            What::Copy => (Done::Copy, whole(head)),
            What::Dropped => (Done::Dropped, None),
            What::Silent => (Done::Silent, None),
            What::Damaged { damage, amount } => {
                let mut made = self.whole(event.place, payloads, head);
                let readable = self.spoil(damage, amount, head, &mut made);
                (Done::Damaged { damage, readable }, Some(made))
            }
            What::Rubbish { amount } => (Done::Rubbish, Some(self.rubbish(amount, payloads, head))),
            What::Beside { version, number } => {
                (Done::Beside, self.beside(event.place, version, number, head))
            }
        }
    }

    /// The correct frame of a place.
    #[inline]
    fn whole(&self, place: u64, payloads: &Payloads, head: &mut [u8; HEAD_BYTES]) -> Made {
        let payload = place.wrapping_add(self.payload_shift);
        let number = self.first_number.wrapping_add_unsigned(place).cast_unsigned();
        match &self.form {
            Form::Frames { kind, template, packet_number } => {
                let mut at = 0;
                if *packet_number {
                    head[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
                    at = NUMBER_BYTES;
                }
                let header = self.header(template, place);
                let bytes = FrameCodec::any_day(*kind).write(&header, &mut head[at..]);
                let bytes = bytes.expect("there is room for the longest head");
                Made { head: at + bytes, payload, from: 0, to: payloads.each() }
            }
            Form::Packets(packets) => {
                let bytes = packets.write(|| self.stamp(place), number, head);
                Made { head: bytes, payload, from: 0, to: payloads.each() }
            }
            Form::Raw { sequence: None, .. } => {
                Made { head: 0, payload, from: 0, to: payloads.each() }
            }
            Form::Raw { sequence: Some(field), .. } => {
                let end = field.end();
                head[..end].copy_from_slice(&payloads.of(payload)[..end]);
                field.write(head, number);
                Made { head: end, payload, from: end, to: payloads.each() }
            }
        }
    }

    /// The time of the first sample of a place.
    fn stamp(&self, place: u64) -> Stamp {
        let (second, packet) = (place / self.frames_per_second, place % self.frames_per_second);
        let start = Second(self.first_second.0 + second as i64).start();
        let picoseconds =
            u128::from(packet) * u128::from(PICOSECONDS) / u128::from(self.frames_per_second);
        Stamp {
            seconds: start.unix_ns().div_euclid(1_000_000_000) as u32,
            picoseconds: picoseconds as u64,
        }
    }

    /// The context or version packet before a place; none in other formats.
    fn beside(
        &self,
        place: u64,
        version: bool,
        number: u64,
        head: &mut [u8; HEAD_BYTES],
    ) -> Option<Made> {
        let Form::Packets(PacketForm::Vita49(form)) = &self.form else { return None };
        let stamp = self.stamp(place);
        let packet = match version {
            true => form.version(stamp, number),
            false => form.context(stamp, number, self.frames_per_second),
        };
        head[..packet.len()].copy_from_slice(&packet);
        Some(Made { head: packet.len(), payload: 0, from: 0, to: 0 })
    }

    /// The template with time, thread and counts of a place.
    #[inline]
    fn header(&self, template: &Header, place: u64) -> Header {
        let (index, thread) = self.frame_of(place);
        let second = (index / self.frames_per_second) as i64;
        let frame = (index % self.frames_per_second) as u32;
        let mut header = template.with_thread(thread);
        header.set_time(Second(self.first_second.0 + second), frame);
        match header.edv() {
            2 | 4 | 0xAB => self.count_in_words(&mut header, index, place),
            _ => {}
        }
        header
    }

    /// Sets frame counts in extended data. They match the header's, unless the fault is a mismatch.
    fn count_in_words(&self, header: &mut Header, index: u64, place: u64) {
        let wrong = self.miscounts(place);
        header.set_extended(match header.extended() {
            Extended::AlmaR2dbe { backend, psn } => {
                let off = if wrong { mixed(self.faults.seed, place) | 1 << 40 } else { 0 };
                Extended::AlmaR2dbe { backend, psn: psn.wrapping_add(index).wrapping_add(off) }
            }
            Extended::Mark5b { .. } => {
                let rate = Some(self.frames_per_second);
                mark5b(&header.with_seconds(header.seconds() + u32::from(wrong)), rate)
            }
            Extended::Mask { length, unassigned, validity } => {
                let validity = if wrong { 0 } else { validity };
                Extended::Mask { length, unassigned, validity }
            }
            other => other,
        });
    }

    /// Bytes of the header after the packet number, if there is one.
    fn header_end(&self) -> usize {
        match &self.form {
            Form::Frames { kind, template, packet_number } => {
                let header = FrameCodec::any_day(*kind).header_bytes(template);
                header + if *packet_number { NUMBER_BYTES } else { 0 }
            }
            Form::Packets(packets) => packets.head_bytes() as usize,
            Form::Raw { sequence, .. } => sequence.as_ref().map_or(0, Field::end),
        }
    }

    /// Damages a datagram; returns true if its place can still be read.
    fn spoil(
        &self,
        damage: Damage,
        amount: u64,
        head: &mut [u8; HEAD_BYTES],
        made: &mut Made,
    ) -> bool {
        let header_end = self.header_end();
        let (numbered, counted) = match &self.form {
            Form::Frames { packet_number, .. } => (*packet_number, true),
            Form::Packets(_) => (false, true),
            Form::Raw { sequence, .. } => (false, sequence.is_some()),
        };
        match damage {
            Damage::Truncated => {
                let payload = made.to - made.from;
                let left = (amount % (made.head + payload) as u64) as usize;
                made.to = made.from + left.saturating_sub(made.head);
                made.head = made.head.min(left);
                let needs = if numbered { NUMBER_BYTES } else { header_end };
                counted && left >= needs
            }
            Damage::Extended => {
                made.to += 1 + (amount % SPARE_BYTES as u64) as usize;
                counted
            }
            Damage::LengthField => {
                if let Form::Packets(PacketForm::Vita49(form)) = &self.form {
                    let longer = form.words().saturating_add(1 + (amount % 64) as u16);
                    head[2..4].copy_from_slice(&longer.to_be_bytes());
                }
                self.rewrite_header(head, |header| {
                    let longer = header.frame_bytes() + 8 * (1 + (amount % 64) as u32);
                    header.set_frame_bytes(longer.min(Header::LONGEST_FRAME));
                });
                counted
            }
            Damage::ZeroedHeader => {
                let start = if numbered { NUMBER_BYTES } else { 0 };
                head[start..header_end].fill(0);
                numbered
            }
        }
    }

    fn rewrite_header(&self, head: &mut [u8; HEAD_BYTES], change: impl FnOnce(&mut Header)) {
        let end = self.header_end();
        let Form::Frames { template, .. } = &self.form else { return };
        let start = end - template.header_bytes();
        if let Ok(mut header) = Header::read(&head[start..]) {
            change(&mut header);
            head[start..end].copy_from_slice(header.as_bytes());
        }
    }

    /// A datagram that is no frame of this stream, because its length, its station or its type differs.
    fn rubbish(&self, amount: u64, payloads: &Payloads, head: &mut [u8; HEAD_BYTES]) -> Made {
        for (n, word) in head.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *word = mixed(amount, n as u64).to_le_bytes();
        }
        let header_end = self.header_end();
        if let Form::Frames { kind: FrameKind::Vdif, template, .. } = &self.form {
            let station = header_end - template.header_bytes() + 12;
            head[station..station + 2].copy_from_slice(&(!template.station()).to_le_bytes());
        }
        if let Form::Packets(packets) = &self.form {
            packets.make_foreign(&mut head[0]);
        }
        let length = (amount >> 32) as usize % 1400;
        let tail = length.saturating_sub(HEAD_BYTES).min(payloads.each());
        let mut made = Made { head: length.min(HEAD_BYTES), payload: amount, from: 0, to: tail };
        let whole = header_end + payloads.each();
        if made.head + tail == whole {
            made.head -= 1;
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use fullbore_formats::vdif::check;

    use super::*;

    fn maker(packet_number: bool, threads: &[u16]) -> (Maker, Payloads) {
        let template = Header::default().with_frame_bytes(1032).with_station(0x777A);
        let form = Form::Frames { kind: FrameKind::Vdif, template, packet_number };
        let payloads = Payloads::of_pattern(&"counter".parse().unwrap(), 1000);
        (Maker::new(form, threads, 100, Second::of(53, 1000), 5, 3), payloads)
    }

    fn datagram(maker: &Maker, payloads: &Payloads, event: Event) -> (Done, Vec<u8>) {
        let mut head = [0; HEAD_BYTES];
        let (done, made) = maker.make(event, payloads, &mut head);
        let made = made.unwrap();
        (done, [&head[..made.head], made.payload(payloads)].concat())
    }

    #[test]
    fn places_become_frames_of_their_thread_and_time() {
        let (maker, payloads) = maker(true, &[7, 9]);
        let place = 2 * 250 + 1;
        let (done, bytes) = datagram(&maker, &payloads, Event { place, what: What::Sent });
        assert_eq!(done, Done::Sent { late: false });
        assert_eq!(bytes[..8], (5 + place).to_le_bytes());
        let header = check(&bytes[8..], 1032).unwrap();
        assert_eq!((header.thread(), header.frame_number()), (9, 50));
        assert_eq!(header.second(), Second::of(53, 1002));
        assert_eq!(bytes[40..], *payloads.of(place + 3));
    }

    #[test]
    fn damage_is_damage_and_says_whether_the_place_is_readable() {
        let (damages, rubbish) =
            (super::super::fault::VDIF_DAMAGES, What::Rubbish { amount: 77 << 33 });
        for packet_number in [false, true] {
            let (maker, payloads) = maker(packet_number, &[0]);
            let skip = if packet_number { 8 } else { 0 };
            for damage in damages.iter().flatten().copied() {
                for amount in 0..3000 {
                    let event = Event { place: 40, what: What::Damaged { damage, amount } };
                    let (done, bytes) = datagram(&maker, &payloads, event);
                    let frame = bytes.get(skip..).unwrap_or(&[]);
                    assert!(check(frame, 1032).is_err(), "{damage:?} {amount}");
                    let readable = if packet_number {
                        bytes.len() >= 8 && bytes[..8] == 45u64.to_le_bytes()
                    } else {
                        Header::read(frame).is_ok_and(|h| h.second() == Second::of(53, 1000))
                    };
                    assert_eq!(done, Done::Damaged { damage, readable }, "{amount}");
                }
            }
            let (_, bytes) = datagram(&maker, &payloads, Event { place: 1, what: rubbish });
            assert_ne!(bytes.len(), 1032 + skip);
            if let Ok(header) = Header::read(bytes.get(skip..).unwrap_or(&[])) {
                assert_ne!(header.station(), 0x777A);
            }
        }
    }

    #[test]
    fn packets_carry_count_and_time_and_their_damage_is_damage() {
        use fullbore_formats::vita49::{Fraction, Packet, Prologue};

        use crate::generate::Vita49Form;

        let form = Vita49Form {
            difi: true,
            stream_id: 7,
            packet_bytes: 1028,
            bits: 16,
            frequency_hz: 1_420_405_752,
        };
        let payloads = Payloads::of_pattern(&"counter".parse().unwrap(), 1000);
        // 2026-07-01, and three packets per second.
        let maker =
            Maker::new(Form::Packets(PacketForm::Vita49(form)), &[0], 3, Second::of(53, 0), 0, 0);
        let place = 3 * 10 + 2;
        let (_, bytes) = datagram(&maker, &payloads, Event { place, what: What::Sent });
        let packet = Packet::read(&bytes).unwrap();
        let prologue = packet.prologue;
        assert_eq!((prologue.count, prologue.stream), (0, Some(7)));
        assert_eq!(prologue.fraction, Fraction::Picoseconds(666_666_666_666));
        assert_eq!(prologue.seconds.unwrap().1, 1_782_864_010);
        assert_eq!(packet.payload, payloads.of(place));
        for damage in super::super::fault::VDIF_DAMAGES.iter().flatten().copied() {
            for amount in 0..2000 {
                let event = Event { place, what: What::Damaged { damage, amount } };
                let (done, bytes) = datagram(&maker, &payloads, event);
                assert!(Packet::read(&bytes).is_err(), "{damage:?} {amount}");
                let readable = Prologue::read(&bytes).is_ok_and(|it| it.stream == Some(7));
                assert_eq!(done, Done::Damaged { damage, readable }, "{amount}");
            }
        }
        for amount in 0..2000 {
            let event = Event { place, what: What::Rubbish { amount: amount << 32 | amount } };
            let (_, bytes) = datagram(&maker, &payloads, event);
            assert!(Prologue::read(&bytes).is_err(), "{amount}");
        }
    }

    #[test]
    fn raw_datagrams_carry_their_number_where_it_belongs() {
        let sequence: Field = "10:4:be".parse().unwrap();
        let form = Form::Raw { frame_bytes: 1400, sequence: Some(sequence) };
        let payloads = Payloads::of_pattern(&"prbs31".parse().unwrap(), 1400);
        let maker = Maker::new(form, &[0], 100, Second(0), 0xFFFF_FFFF, 0);
        let (_, bytes) = datagram(&maker, &payloads, Event { place: 2, what: What::Sent });
        assert_eq!((bytes.len(), sequence.read(&bytes)), (1400, Some(1)));
        assert_eq!(bytes[..10], payloads.of(2)[..10]);
        assert_eq!(bytes[14..], payloads.of(2)[14..]);
    }
}
