//! The samples of one stream id: the layout that context states, and the place of each packet's samples.
//!
//! ```text
//! packets      0        1        3        4        6 …          2 and 5 are lost
//! samples      0 …      360 …    1080 …   1440 …   2160 …       counted from the first packet
//! ```
//!
//! Packets are counted by the indexer of the account, so both agree about losses. Each lost packet counts as many samples
//! as the others if all have one length. Otherwise the time between two packets tells the samples of the lost ones.

use std::ops::Range;

use fullbore_time::Tai;

use super::index::PacketIndexer;
use super::listing::ListedChange;
use super::packet::{Fraction, PICOSECONDS, Packet, Prologue};
use super::payload_format::{self, FormatError};
use crate::packets::PacketReading;
use crate::samples::{SampleLayout, SampleRate};

/// A larger step of the index, forward or backward, is a restart of the sender: the samples go on without a gap.
const FURTHEST_AHEAD: i64 = 1 << 31;

/// Packets are overtaken by fewer others than this.
const FURTHEST_BACK: i64 = 4096;

/// The largest number of a sample.
const MOST_SAMPLES: u64 = 1 << 60;

/// The reason why packets have no samples that can be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SamplesError {
    /// Neither the endpoint nor a context packet describes the samples.
    #[error("no context packet has stated the payload format of stream id {id}")]
    NoContext {
        /// The stream id, or `none`.
        id: String,
    },
    /// A payload format that is not decoded.
    #[error("context packets state the payload format {format}: {source}")]
    Format {
        /// Sixteen hexadecimal digits.
        format: String,
        /// The reason.
        source: FormatError,
    },
    /// The samples change within a stream.
    #[error("context packets change the {what} of stream id {id}, and a file has one")]
    Changes {
        /// The value.
        what: &'static str,
        /// The stream id.
        id: String,
    },
    /// The packets have no samples.
    #[error("its packets are context or commands, not data")]
    NoData,
    /// A payload is not a whole number of samples.
    #[error("{bits} bits of a packet are no whole samples of {layout}")]
    Partial {
        /// Bits of the payload without its padding.
        bits: u64,
        /// The samples.
        layout: String,
    },
}

/// Returns the layout of the samples of a stream id. What the endpoint describes comes before what context packets state.
pub fn layout(
    stream: Option<u32>,
    described: Option<&SampleLayout>,
    changes: &[ListedChange],
) -> Result<SampleLayout, SamplesError> {
    let id = stream.map_or("none".to_owned(), |id| format!("{id:08x}"));
    let own = || changes.iter().filter(|change| stream.is_some() && change.stream_id == id);
    let changed = |what| Err(SamplesError::Changes { what, id: id.clone() });
    let mut layout = match described {
        Some(described) => described.clone(),
        None => {
            let mut formats = own().filter_map(|change| change.payload_format.as_deref());
            let Some(format) = formats.next() else { return Err(SamplesError::NoContext { id }) };
            if formats.any(|other| other != format) {
                return changed("payload format");
            }
            let number = u64::from_str_radix(format, 16).unwrap_or(u64::MAX);
            payload_format::layout(number)
                .map_err(|source| SamplesError::Format { format: format.to_owned(), source })?
        }
    };
    if layout.sample_rate.is_none() {
        let mut rates = own().filter_map(|change| rate_of(change.sample_rate_hz?.get()));
        layout.sample_rate = rates.next();
        if rates.any(|other| Some(other) != layout.sample_rate) {
            return changed("sample rate");
        }
    }
    if layout.frequency_hz.is_none() {
        layout.frequency_hz = own().find_map(|change| change.rf_frequency_hz);
    }
    Ok(layout)
}

/// The rate of a context packet, whose unit is 2^-20 Hz.
fn rate_of(hertz: f64) -> Option<SampleRate> {
    let unit = 1u64 << 20;
    let whole = hertz * unit as f64;
    (1.0..9e18).contains(&whole).then(|| SampleRate::new(whole as u64, unit)).flatten()
}

/// The samples of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketSamples {
    /// The number of its first sample, counted from the first packet, with those of lost packets.
    pub sample: u64,
    /// The number of its samples.
    pub samples: u64,
    /// Their bytes in the packet.
    pub payload: Range<usize>,
}

/// Finds the place of the samples of each packet of a stream.
#[derive(Clone, Debug)]
pub struct PacketPlaces {
    layout: SampleLayout,
    indexer: PacketIndexer,
    /// What restarts of the sender add to its index.
    base: i64,
    last: Option<Last>,
    start: Option<Tai>,
    /// The length of all packets so far, in samples. `None` if they differ.
    uniform: Option<u64>,
}

/// The packet with the highest index so far.
#[derive(Clone, Copy, Debug)]
struct Last {
    index: i64,
    sample: u64,
    samples: u64,
    prologue: Prologue,
}

impl PacketPlaces {
    /// Places packets like this one, the first of a stream, whose samples have this layout.
    pub fn new(layout: SampleLayout, first: &[u8]) -> Result<Self, SamplesError> {
        let indexer = PacketIndexer::of(first).filter(PacketIndexer::is_data);
        let indexer = indexer.ok_or(SamplesError::NoData)?;
        let start = indexer.stamp(first);
        Ok(Self { layout, indexer, base: 0, last: None, start, uniform: None })
    }

    /// The layout.
    pub fn layout(&self) -> &SampleLayout {
        &self.layout
    }

    /// The time of the first sample, if the packets have one of UTC or GPS.
    pub fn start(&self) -> Option<Tai> {
        self.start
    }

    /// True if a packet belongs to the stream.
    pub fn owns(&self, packet: &[u8]) -> bool {
        self.indexer.owns(packet)
    }

    /// Places the samples of a whole packet. `None` if it is no packet of the stream, has no samples, or is older than all
    /// that a packet may overtake.
    pub fn place(&mut self, bytes: &[u8]) -> Result<Option<PacketSamples>, SamplesError> {
        let Ok(packet) = Packet::read(bytes) else { return Ok(None) };
        let PacketReading::Whole { index, .. } = self.indexer.read(bytes, bytes.len()) else {
            return Ok(None);
        };
        let (payload, samples) = self.payload(&packet)?;
        self.indexer.learn(bytes);
        let index = self.based(index);
        let Some(last) = self.last else {
            self.uniform = Some(samples);
            self.last = Some(Last { index, sample: 0, samples, prologue: packet.prologue });
            return Ok(Some(PacketSamples { sample: 0, samples, payload }));
        };
        self.uniform = self.uniform.filter(|length| *length == samples);
        let Some(sample) = self.sample_of(&last, index, samples, &packet.prologue) else {
            return Ok(None);
        };
        if index > last.index {
            self.last = Some(Last { index, sample, samples, prologue: packet.prologue });
        }
        Ok((samples > 0).then_some(PacketSamples { sample, samples, payload }))
    }

    /// The bytes of the samples, and their number.
    fn payload(&self, packet: &Packet<'_>) -> Result<(Range<usize>, u64), SamplesError> {
        let begin = packet.prologue.bytes();
        let pad = packet.prologue.class.map_or(0, |class| u64::from(class.pad_bits));
        let bits = (packet.payload.len() as u64 * 8).saturating_sub(pad);
        let bytes = bits.is_multiple_of(8).then_some(bits / 8);
        let samples = bytes.and_then(|bytes| Some((bytes, self.layout.samples_in(bytes)?)));
        let (bytes, samples) = samples
            .ok_or_else(|| SamplesError::Partial { bits, layout: self.layout.to_string() })?;
        Ok((begin..begin + bytes as usize, samples))
    }

    /// The index with what restarts of the sender add to it.
    fn based(&mut self, index: i64) -> i64 {
        let Some(last) = self.last else { return index };
        let based = index.saturating_add(self.base);
        let step = based.saturating_sub(last.index);
        if (-FURTHEST_BACK..=FURTHEST_AHEAD).contains(&step) {
            return based;
        }
        self.base = (last.index + 1).saturating_sub(index);
        last.index + 1
    }

    /// The first sample of a packet with this index and number of samples.
    fn sample_of(&self, last: &Last, index: i64, samples: u64, prologue: &Prologue) -> Option<u64> {
        let next = last.sample + last.samples;
        let lost = index - last.index - 1;
        if lost == 0 {
            return Some(next);
        }
        let by_count = || {
            let length = self.uniform.unwrap_or(last.samples);
            i128::from(next) + i128::from(lost) * i128::from(length)
        };
        let by_time = || Some(i128::from(last.sample) + self.samples_between(last, prologue)?);
        let sample = match self.uniform {
            Some(_) => by_count(),
            None => by_time().unwrap_or_else(by_count),
        };
        // A packet before the last one ends before it, and one behind it begins behind it.
        let range = match lost {
            ..0 => 0..=i128::from(last.sample) - i128::from(samples),
            _ => i128::from(next)..=i128::from(MOST_SAMPLES),
        };
        let inside = match lost {
            ..0 => Some(sample).filter(|sample| range.contains(sample)),
            _ => Some(sample.clamp(*range.start(), *range.end())),
        };
        inside.and_then(|sample| u64::try_from(sample).ok())
    }

    /// The samples between the starts of two packets, by their times and the sample rate.
    fn samples_between(&self, last: &Last, prologue: &Prologue) -> Option<i128> {
        let (above, below) = self.layout.sample_rate?.ratio();
        let (above, below) = (i128::from(above), i128::from(below));
        let seconds = match (last.prologue.seconds, prologue.seconds) {
            (None, None) => 0,
            (Some((of, before)), Some((epoch, after))) if of == epoch => {
                i128::from(after) - i128::from(before)
            }
            _ => return None,
        };
        let rounded = |above: i128, below: i128| (2 * above + below).div_euclid(2 * below);
        let between = |before: u64, after: u64| i128::from(after) - i128::from(before);
        match (last.prologue.fraction, prologue.fraction) {
            (Fraction::Picoseconds(before), Fraction::Picoseconds(after)) => {
                let ps = seconds * i128::from(PICOSECONDS) + between(before, after);
                Some(rounded(ps.checked_mul(above)?, below * i128::from(PICOSECONDS)))
            }
            (Fraction::Samples(before), Fraction::Samples(after)) => {
                Some(rounded(seconds.checked_mul(above)?, below) + between(before, after))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Finite;
    use crate::vita49::Kind;
    use crate::vita49::packet::Epoch;
    use crate::vita49::write::{self, Stamp, difi_prologue};

    const RATE: u64 = 1_000_000;

    fn change(stream_id: &str, format: Option<&str>, rate: f64) -> ListedChange {
        ListedChange {
            stream_id: stream_id.into(),
            time: None,
            sample_rate_hz: Finite::try_from(rate).ok(),
            rf_frequency_hz: Finite::try_from(1.5e9).ok(),
            if_frequency_hz: None,
            rf_offset_hz: None,
            band_offset_hz: None,
            bandwidth_hz: None,
            reference_level_dbm: None,
            gain_db: None,
            payload_format: format.map(str::to_owned),
        }
    }

    /// A packet with this count, whose first sample is this one, of complex samples of 16 bits.
    fn packet(count: u64, sample: u64, samples: u16, pad: u8) -> Vec<u8> {
        let part = sample % RATE * (PICOSECONDS / RATE);
        let stamp = Stamp { seconds: 1_700_000_000 + (sample / RATE) as u32, picoseconds: part };
        let mut start = difi_prologue(Kind::Data, 7, stamp, (count % 16) as u8, samples);
        start.class = start.class.map(|class| crate::vita49::ClassId { pad_bits: pad, ..class });
        let mut packet = vec![count as u8; 4 * usize::from(start.words)];
        write::prologue(&start, &mut packet).unwrap();
        packet
    }

    fn places(first: &[u8]) -> PacketPlaces {
        let changes = [change("00000007", Some("A00003CF00000000"), RATE as f64)];
        let layout = layout(Some(7), None, &changes).unwrap();
        PacketPlaces::new(layout, first).unwrap()
    }

    fn placed(packets: &[Vec<u8>]) -> Vec<Option<u64>> {
        let mut places = places(&packets[0]);
        packets.iter().map(|it| Some(places.place(it).unwrap()?.sample)).collect()
    }

    #[test]
    fn context_gives_the_layout_and_the_endpoint_comes_first() {
        let changes = [
            change("00000008", Some("A00001C700000000"), 5e5),
            change("00000007", None, 1e6),
            change("00000007", Some("A00003CF00000000"), 1e6),
        ];
        let of_context = layout(Some(7), None, &changes).unwrap().to_string();
        assert_eq!(of_context, "1 channel of ci16_be at 1000000 Hz, around 1500000000 Hz");
        let described = SampleLayout::new("ri8".parse().unwrap(), 4);
        let of_both = layout(Some(7), Some(&described), &changes).unwrap().to_string();
        assert_eq!(of_both, "4 channels of ri8 at 1000000 Hz, around 1500000000 Hz");
        assert_eq!(layout(None, Some(&described), &changes).unwrap(), described);
    }

    #[test]
    fn layouts_that_are_unknown_or_change_are_refused() {
        let why =
            |changes: &[ListedChange]| layout(Some(7), None, changes).unwrap_err().to_string();
        assert!(why(&[change("00000008", Some("A00003CF00000000"), 1e6)]).contains("00000007"));
        let odd = "A00002CB00000000";
        assert!(why(&[change("00000007", Some(odd), 1e6)]).contains("12 bits"));
        let first = change("00000007", Some("A00003CF00000000"), 1e6);
        let other = change("00000007", Some("A00001C700000000"), 1e6);
        assert!(why(&[first.clone(), other]).contains("payload format"));
        let faster = change("00000007", Some("A00003CF00000000"), 2e6);
        assert!(why(&[first, faster]).contains("sample rate"));
    }

    #[test]
    fn lost_packets_of_one_length_leave_their_samples_out() {
        let sent: Vec<u64> = (0..8).chain([40, 41, 43, 42]).collect();
        let packets: Vec<Vec<u8>> = sent.iter().map(|n| packet(*n, n * 360, 360, 0)).collect();
        let expected: Vec<Option<u64>> = sent.iter().map(|n| Some(n * 360)).collect();
        assert_eq!(placed(&packets), expected);
    }

    #[test]
    fn the_time_tells_the_samples_of_lost_packets_of_other_lengths() {
        // Packets of 100 samples, then of 300; numbers 6 to 8 of 50 samples are lost.
        let lengths: Vec<u64> = vec![100, 100, 100, 100, 300, 300, 50, 50, 50, 300, 300];
        let mut sample = 0;
        let (mut packets, mut expected) = (Vec::new(), Vec::new());
        for (number, length) in lengths.iter().enumerate() {
            if !(6..9).contains(&number) {
                packets.push(packet(number as u64, sample, *length as u16, 0));
                expected.push(Some(sample));
            }
            sample += length;
        }
        // The count alone misses packets only modulo 16, so the account agrees.
        assert_eq!(placed(&packets), expected);
    }

    #[test]
    fn the_pad_and_the_trailer_are_no_samples() {
        let mut padded = packet(0, 0, 10, 0);
        let mut places = places(&padded);
        assert_eq!(places.place(&padded).unwrap().unwrap().payload, 28..68);
        padded = packet(1, 10, 10, 16);
        let error = places.place(&padded).unwrap_err();
        assert_eq!(error, SamplesError::Partial { bits: 304, layout: places.layout().to_string() });
        let layout = SampleLayout::new("ri16_be".parse().unwrap(), 1);
        let mut narrow = PacketPlaces::new(layout, &packet(0, 0, 10, 16)).unwrap();
        let found = narrow.place(&packet(0, 0, 10, 16)).unwrap().unwrap();
        assert_eq!((found.payload, found.samples), (28..66, 19));
        let start = Prologue { has_trailer: true, words: 4, ..plain() };
        let mut trailed = vec![0; 16];
        write::prologue(&start, &mut trailed).unwrap();
        let mut places = PacketPlaces::new(narrow.layout().clone(), &trailed).unwrap();
        assert_eq!(places.place(&trailed).unwrap().unwrap().payload, 4..12);
    }

    fn plain() -> Prologue {
        Prologue {
            kind: Kind::Data,
            stream: None,
            class: None,
            seconds: None,
            fraction: Fraction::None,
            has_trailer: false,
            count: 0,
            words: 1,
        }
    }

    #[test]
    fn a_restart_of_the_sender_goes_on_without_a_gap() {
        let sent = [1_000_000, 1_000_001, 1_000_002, 1_000_003, 5, 6, 7];
        let packets: Vec<Vec<u8>> = sent.iter().map(|n| packet(*n, n * 360, 360, 0)).collect();
        let expected: Vec<Option<u64>> = (0..7).map(|n| Some(n * 360)).collect();
        assert_eq!(placed(&packets), expected);
    }

    #[test]
    fn packets_without_data_and_those_of_others_have_no_samples() {
        let first = packet(0, 0, 10, 0);
        let mut places = places(&first);
        places.place(&first).unwrap();
        assert_eq!(places.place(&first[..40]).unwrap(), None);
        let mut other = packet(1, 10, 10, 0);
        other[7] = 8;
        assert_eq!(places.place(&other).unwrap(), None);
        let context = Prologue {
            kind: Kind::Context,
            stream: Some(7),
            seconds: Some((Epoch::Utc, 0)),
            words: 3,
            ..plain()
        };
        let mut bytes = vec![0; 12];
        write::prologue(&context, &mut bytes).unwrap();
        let error = PacketPlaces::new(places.layout().clone(), &bytes).unwrap_err();
        assert_eq!(error, SamplesError::NoData);
    }
}
