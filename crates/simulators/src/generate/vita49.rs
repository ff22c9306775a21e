//! VITA-49 and DIFI packets of one stream id: complex samples, and the packets that describe them.
//!
//! ```text
//! frame of the second   0            f/10        2f/10
//! ──────────────────────V C D D D D … C D D D D … C D D …    V version (DIFI), C context, D data
//! ```
//!
//! Data packets are counted by place. Context comes ten times a second, before the packet that is due then; a version
//! packet comes once a second.

use fullbore_formats::vita49::Kind;
use fullbore_formats::vita49::packet::Prologue;
use fullbore_formats::vita49::write::{
    self, DIFI_PROLOGUE_BYTES, PLAIN_PROLOGUE_BYTES, Stamp, Values, complex_format, difi_prologue,
    plain_prologue,
};
use serde::Serialize;

use super::datagram::HEAD_BYTES;
use super::fault::What;

/// Context packets per second.
const CONTEXT_PER_SECOND: u64 = 10;

/// The date and the revision in version packets: 2026, day 331, revision 1.
const VERSION_DATE: u32 = 26 << 25 | 331 << 16 | 1 << 10;

/// The packets of one stream id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Vita49Form {
    /// True for the rules of DIFI: a class id in each packet, and version packets.
    pub difi: bool,
    /// The stream id.
    pub stream_id: u32,
    /// Bytes of a data packet, header included.
    pub packet_bytes: u32,
    /// Bits of each half of a complex sample.
    pub bits: u32,
    /// The centre frequency in the context, in hertz.
    pub frequency_hz: u64,
}

impl Vita49Form {
    /// The name of the format.
    pub fn name(&self) -> &'static str {
        if self.difi { "difi" } else { "vita49" }
    }

    /// Bytes of the words before the samples.
    pub fn prologue_bytes(&self) -> usize {
        if self.difi { DIFI_PROLOGUE_BYTES } else { PLAIN_PROLOGUE_BYTES }
    }

    /// Bytes of the samples in a packet.
    pub fn payload_bytes(&self) -> u32 {
        self.packet_bytes.saturating_sub(self.prologue_bytes() as u32)
    }

    /// Complex samples in a packet.
    pub fn samples(&self) -> u64 {
        u64::from(self.payload_bytes()) * 8 / u64::from(2 * self.bits).max(1)
    }

    /// Refuses packets that do not exist, or that readers would not accept.
    pub fn check(&self) -> Result<(), String> {
        let (bytes, bits) = (self.packet_bytes, self.bits);
        if !(4..=16).contains(&bits) {
            return Err(format!("samples of {} have 4 to 16 bits, not {bits}", self.name()));
        }
        if !bytes.is_multiple_of(4) || self.payload_bytes() == 0 {
            let least = self.prologue_bytes() + 4;
            return Err(format!("packets are multiples of 4 bytes from {least} on, not {bytes}"));
        }
        if !(u64::from(self.payload_bytes()) * 8).is_multiple_of(u64::from(2 * bits)) {
            return Err(format!(
                "{} bytes behind the header are no whole number of complex samples of 2 × {bits} bits",
                self.payload_bytes()
            ));
        }
        // Frequencies are 63 bits with 20 bits behind the point.
        if self.frequency_hz >> 43 != 0 {
            return Err(format!(
                "a context has no room for a frequency of {} Hz",
                self.frequency_hz
            ));
        }
        Ok(())
    }

    /// The size in the header of a data packet.
    pub(super) fn words(&self) -> u16 {
        (self.packet_bytes / 4) as u16
    }

    fn prologue(&self, kind: Kind, stamp: Stamp, number: u64, payload_words: u16) -> Prologue {
        let make = if self.difi { difi_prologue } else { plain_prologue };
        make(kind, self.stream_id, stamp, (number & 15) as u8, payload_words)
    }

    /// Writes the words before the samples of a data packet, and returns their bytes.
    #[inline]
    pub(super) fn write_prologue(
        &self,
        stamp: Stamp,
        number: u64,
        head: &mut [u8; HEAD_BYTES],
    ) -> usize {
        let words = (self.payload_bytes() / 4) as u16;
        let prologue = self.prologue(Kind::Data, stamp, number, words);
        write::prologue(&prologue, head).expect("there is room for the longest head")
    }

    /// A context packet. The first one says that its values are new.
    pub(super) fn context(&self, stamp: Stamp, number: u64, packets_per_second: u64) -> Vec<u8> {
        let sample_rate = self.samples() * packets_per_second;
        let values = Values {
            changed: number == 0,
            bandwidth: sample_rate / 5 * 4,
            rf_frequency: self.frequency_hz.cast_signed(),
            reference_level: 0,
            gain: 0,
            sample_rate,
            payload_format: complex_format(self.bits),
        };
        write::context_behind(self.prologue(Kind::Context, stamp, number, 0), &values)
    }

    /// A version packet.
    pub(super) fn version(&self, stamp: Stamp, number: u64) -> Vec<u8> {
        write::version(self.stream_id, stamp, (number & 15) as u8, VERSION_DATE)
    }
}

/// The turns of context and version packets.
#[derive(Clone, Debug)]
pub(super) struct Beside {
    has_version: bool,
    packets_per_second: u64,
    contexts: u64,
    versions: u64,
}

impl Beside {
    pub(super) fn new(form: &Vita49Form, packets_per_second: u64) -> Self {
        Beside { has_version: form.difi, packets_per_second, contexts: 0, versions: 0 }
    }

    /// The packets due before the data packet of a place.
    pub(super) fn before(&mut self, place: u64) -> impl Iterator<Item = What> + use<> {
        let packet = place % self.packets_per_second;
        let turn = |packet: u64| packet * CONTEXT_PER_SECOND / self.packets_per_second;
        let version_due = self.has_version && (packet == 0 || self.versions == 0);
        let context_due = self.contexts == 0 || packet == 0 || turn(packet) != turn(packet - 1);
        let version = version_due.then_some(What::Beside { version: true, number: self.versions });
        let context = context_due.then_some(What::Beside { version: false, number: self.contexts });
        self.versions += u64::from(version_due);
        self.contexts += u64::from(context_due);
        version.into_iter().chain(context)
    }
}

#[cfg(test)]
mod tests {
    use fullbore_formats::vita49::{Context, Packet, difi};

    use super::*;

    fn form(difi: bool) -> Vita49Form {
        let (packet_bytes, bits) = (if difi { 1228 } else { 1220 }, 16);
        Vita49Form { difi, stream_id: 7, packet_bytes, bits, frequency_hz: 1_420_405_752 }
    }

    #[test]
    fn context_comes_ten_times_a_second_and_version_once() {
        for packets_per_second in [1, 3, 10, 11, 997, 10_000] {
            let mut beside = Beside::new(&form(true), packets_per_second);
            let due: Vec<What> =
                (0..3 * packets_per_second).flat_map(|place| beside.before(place)).collect();
            let versions =
                due.iter().filter(|what| matches!(what, What::Beside { version: true, .. }));
            assert_eq!(versions.count(), 3);
            let contexts = due.len() - 3;
            assert_eq!(contexts as u64, 3 * packets_per_second.min(10), "{packets_per_second}");
        }
    }

    #[test]
    fn a_run_begins_with_context_wherever_it_begins() {
        let mut beside = Beside::new(&form(false), 1000);
        assert_eq!(beside.before(777).count(), 1);
        assert_eq!(beside.before(778).count(), 0);
        assert_eq!(beside.before(800).count(), 1);
    }

    #[test]
    fn context_tells_the_rate_of_the_samples() {
        let stamp = Stamp { seconds: 1_790_000_000, picoseconds: 5 };
        for difi_rules in [false, true] {
            let form = form(difi_rules);
            let bytes = form.context(stamp, 17, 1000);
            let packet = Packet::read(&bytes).unwrap();
            assert_eq!(difi::check(&packet.prologue).is_ok(), difi_rules);
            assert_eq!(packet.prologue.count, 1);
            let context = Context::read(&packet).unwrap();
            assert_eq!((context.sample_rate, context.bandwidth), (Some(300e3), Some(240e3)));
            assert_eq!(context.rf_frequency, Some(1_420_405_752.0));
        }
    }

    #[test]
    fn packets_that_cannot_be_are_refused_with_the_reason() {
        assert_eq!(form(true).check(), Ok(()));
        let refused = |form: Vita49Form| form.check().unwrap_err();
        assert!(refused(Vita49Form { bits: 2, ..form(true) }).contains("4 to 16 bits"));
        assert!(
            refused(Vita49Form { packet_bytes: 1230, ..form(true) }).contains("multiples of 4")
        );
        assert!(refused(Vita49Form { packet_bytes: 28, ..form(true) }).contains("from 32 on"));
        assert!(
            refused(Vita49Form { packet_bytes: 32, ..form(true) }.of_bits(12)).contains("whole")
        );
        assert!(refused(Vita49Form { frequency_hz: 1 << 43, ..form(true) }).contains("no room"));
    }

    impl Vita49Form {
        fn of_bits(self, bits: u32) -> Self {
            Vita49Form { bits, ..self }
        }
    }
}
