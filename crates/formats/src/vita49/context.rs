//! The fields of a context packet.
//!
//! The first word of the payload, CIF0, has a bit for each field that follows, from bit 31 down. Bits 7 and 3 to 1
//! announce further words of bits, whose fields follow those of CIF0 and are skipped.

use super::packet::{Kind, Packet};

/// Hertz in the unit of frequencies, bandwidths and rates: 2^-20 Hz.
const HERTZ: f64 = 1.0 / (1u64 << 20) as f64;

/// Decibels in the unit of levels and gains: 2^-7 dB.
const DECIBEL: f64 = 1.0 / 128.0;

/// Words of the formatted GPS and INS fields.
const GEOLOCATION_WORDS: usize = 11;

/// Words of the two ephemeris fields.
const EPHEMERIS_WORDS: usize = 13;

/// The reason why a payload is no context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContextError {
    /// The packet has another type.
    #[error("the packet is no context packet")]
    Kind,
    /// The payload ends before the field of this bit of CIF0.
    #[error("the payload ends before the field of bit {bit} of CIF0")]
    Short {
        /// The bit.
        bit: u8,
    },
}

/// The fields of a context packet that describe its samples; `None` where the packet has no such field.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Context {
    /// True if the sender says that a field has changed since the previous packet.
    pub changed: bool,
    /// Bandwidth, in hertz.
    pub bandwidth: Option<f64>,
    /// Reference frequency of the intermediate-frequency signal, in hertz.
    pub if_frequency: Option<f64>,
    /// Reference frequency of the radio-frequency signal, in hertz.
    pub rf_frequency: Option<f64>,
    /// Offset of the radio frequency, in hertz.
    pub rf_offset: Option<f64>,
    /// Offset of the band at the intermediate frequency, in hertz.
    pub band_offset: Option<f64>,
    /// Reference level, in dBm.
    pub reference_level: Option<f64>,
    /// Gain of the first and the second stage, in decibels.
    pub gain: Option<(f64, f64)>,
    /// Samples out of range.
    pub over_range: Option<u32>,
    /// Sample rate, in hertz.
    pub sample_rate: Option<f64>,
    /// Adjustment of the time stamps, in femtoseconds.
    pub time_adjustment: Option<i64>,
    /// Time of the last calibration of the time stamps, in seconds of the packet's integer time.
    pub time_calibration: Option<u32>,
    /// The state and event indicators.
    pub state: Option<u32>,
    /// The payload format of the data packets, as in the packet.
    pub payload_format: Option<u64>,
}

impl Context {
    /// Reads the fields of a context packet.
    pub fn read(packet: &Packet<'_>) -> Result<Self, ContextError> {
        match packet.prologue.kind {
            Kind::Context | Kind::ExtensionContext => Self::of_payload(packet.payload),
            _ => Err(ContextError::Kind),
        }
    }

    /// Reads the fields of a context packet's payload.
    pub fn of_payload(payload: &[u8]) -> Result<Self, ContextError> {
        let mut fields = Fields { payload, bit: 32 };
        let cif0 = fields.word()?;
        for further in [7, 3, 2, 1] {
            if cif0 >> further & 1 == 1 {
                fields.bit = further;
                fields.word()?;
            }
        }
        let mut context = Context { changed: cif0 >> 31 == 1, ..Context::default() };
        for bit in (8..=30).rev().filter(|bit| cif0 >> bit & 1 == 1) {
            fields.bit = bit;
            context.take(bit, &mut fields)?;
        }
        Ok(context)
    }

    /// Returns the values that describe samples: those whose change a reader of the samples must know.
    pub fn described(&self) -> Self {
        Self {
            bandwidth: self.bandwidth,
            if_frequency: self.if_frequency,
            rf_frequency: self.rf_frequency,
            rf_offset: self.rf_offset,
            band_offset: self.band_offset,
            reference_level: self.reference_level,
            gain: self.gain,
            sample_rate: self.sample_rate,
            payload_format: self.payload_format,
            ..Self::default()
        }
    }

    /// Returns these values, and those of an earlier packet where this one has none.
    pub fn over(&self, earlier: Option<Self>) -> Self {
        let Some(before) = earlier else { return *self };
        Self {
            bandwidth: self.bandwidth.or(before.bandwidth),
            if_frequency: self.if_frequency.or(before.if_frequency),
            rf_frequency: self.rf_frequency.or(before.rf_frequency),
            rf_offset: self.rf_offset.or(before.rf_offset),
            band_offset: self.band_offset.or(before.band_offset),
            reference_level: self.reference_level.or(before.reference_level),
            gain: self.gain.or(before.gain),
            sample_rate: self.sample_rate.or(before.sample_rate),
            payload_format: self.payload_format.or(before.payload_format),
            ..*self
        }
    }

    fn take(&mut self, bit: u8, fields: &mut Fields<'_>) -> Result<(), ContextError> {
        match bit {
            29 => self.bandwidth = Some(fields.wide()? as f64 * HERTZ),
            28 => self.if_frequency = Some(fields.hertz()?),
            27 => self.rf_frequency = Some(fields.hertz()?),
            26 => self.rf_offset = Some(fields.hertz()?),
            25 => self.band_offset = Some(fields.hertz()?),
            24 => self.reference_level = Some(decibels(fields.word()?)),
            23 => {
                let word = fields.word()?;
                self.gain = Some((decibels(word), decibels(word >> 16)));
            }
            22 => self.over_range = Some(fields.word()?),
            21 => self.sample_rate = Some(fields.wide()? as f64 * HERTZ),
            20 => self.time_adjustment = Some(fields.wide()?.cast_signed()),
            19 => self.time_calibration = Some(fields.word()?),
            17 => fields.skip(2)?,
            16 => self.state = Some(fields.word()?),
            15 => self.payload_format = Some(fields.wide()?),
            13 | 14 => fields.skip(GEOLOCATION_WORDS)?,
            11 | 12 => fields.skip(EPHEMERIS_WORDS)?,
            9 => {
                fields.skip(1)?;
                let words = fields.word()?;
                fields.skip(words as usize)?;
            }
            8 => {
                let (lists, channels) = (fields.word()?, fields.word()?);
                let [sources, systems] = [lists >> 16 & 0x1FF, lists & 0x1FF];
                let [components, asynchronous] = [channels >> 16, channels & 0x7FFF];
                // Each channel of the last list may have a tag.
                let times = 1 + (channels >> 15 & 1);
                fields.skip((sources + systems + components + times * asynchronous) as usize)?;
            }
            // Reference point, temperature, ephemeris reference.
            _ => fields.skip(1)?,
        }
        Ok(())
    }
}

/// The rest of a payload, and the bit whose field comes next.
struct Fields<'a> {
    payload: &'a [u8],
    bit: u8,
}

impl Fields<'_> {
    fn word(&mut self) -> Result<u32, ContextError> {
        let (word, rest) =
            self.payload.split_first_chunk().ok_or(ContextError::Short { bit: self.bit })?;
        self.payload = rest;
        Ok(u32::from_be_bytes(*word))
    }

    fn wide(&mut self) -> Result<u64, ContextError> {
        Ok(u64::from(self.word()?) << 32 | u64::from(self.word()?))
    }

    fn hertz(&mut self) -> Result<f64, ContextError> {
        Ok(self.wide()?.cast_signed() as f64 * HERTZ)
    }

    fn skip(&mut self, words: usize) -> Result<(), ContextError> {
        let rest = words.checked_mul(4).and_then(|bytes| self.payload.get(bytes..));
        self.payload = rest.ok_or(ContextError::Short { bit: self.bit })?;
        Ok(())
    }
}

/// Returns the level in the low half of a word.
fn decibels(word: u32) -> f64 {
    f64::from((word as u16).cast_signed()) * DECIBEL
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn payload(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// The fields of DIFI's context packet: 20 words from CIF0 `FBB98000` on.
    const DIFI: [u32; 20] = [
        0xFBB9_8000,
        1,
        0x16E_3600 >> 4,
        0,
        0,
        0,
        0x59E,
        0x6280_0000,
        0,
        0,
        0x0000_FE00,
        0x0080_0300,
        0x7A1,
        0x2000_0000,
        0,
        0,
        1_700_000_000,
        0xC000_0000,
        0xA000_03CF,
        0,
    ];

    #[test]
    fn difi_context_has_its_values() {
        let context = Context::of_payload(&payload(&DIFI)).unwrap();
        assert!(context.changed);
        assert_eq!(context.bandwidth, Some(f64::from(0x16E_3600u32 >> 4) * 4096.0));
        assert_eq!((context.if_frequency, context.band_offset), (Some(0.0), Some(0.0)));
        assert_eq!(context.rf_frequency, Some(f64::from(0x59E) * 4096.0 + 1576.0));
        assert_eq!(context.reference_level, Some(-4.0));
        assert_eq!(context.gain, Some((6.0, 1.0)));
        assert_eq!(context.sample_rate, Some(8_000_000.0));
        assert_eq!(context.payload_format, Some(0xA000_03CF_0000_0000));
        assert_eq!(context.state, Some(0xC000_0000));
    }

    #[test]
    fn a_payload_that_ends_early_names_the_field() {
        let whole = payload(&DIFI);
        for bytes in 0..whole.len() {
            assert!(Context::of_payload(&whole[..bytes]).is_err(), "{bytes} bytes");
        }
        let error = Context::of_payload(&whole[..whole.len() - 1]).unwrap_err();
        assert_eq!(error.to_string(), "the payload ends before the field of bit 15 of CIF0");
    }

    #[test]
    fn fields_of_every_length_are_skipped() {
        // Each field before the state and event word, and those of variable length after it.
        let skipped: &[(u8, &[u32])] = &[
            (30, &[1]),
            (18, &[1]),
            (17, &[1, 2]),
            (14, &[0; 11]),
            (13, &[0; 11]),
            (12, &[0; 13]),
            (11, &[0; 13]),
            (10, &[1]),
            (9, &[0, 2, 7, 7]),
            (8, &[0x0001_0002, 0x0001_8002, 1, 2, 3, 4, 5, 6, 7, 8]),
        ];
        for (bit, field) in skipped {
            let words = [&[1 << bit], *field].concat();
            assert_eq!(Context::of_payload(&payload(&words)), Ok(Context::default()), "bit {bit}");
            let short = payload(&words[..words.len() - 1]);
            assert_eq!(Context::of_payload(&short), Err(ContextError::Short { bit: *bit }));
        }
        // CIF1 comes before the fields of CIF0.
        let words = [1 << 22 | 1 << 1, 0xC, 77, 1, 2];
        assert_eq!(Context::of_payload(&payload(&words)).unwrap().over_range, Some(77));
    }

    proptest! {
        #[test]
        fn any_payload_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = Context::of_payload(&bytes);
        }
    }
}
