//! The last 16 bytes of a VDIF header, whose meaning depends on the extended data version (EDV).
//!
//! Every bit survives decoding and encoding. This includes unregistered versions, and registered ones that break their
//! own rules: those are kept as [`Extended::Unknown`] and not refused.

/// The sync word in word 5 of EDV 1, 3 and 4.
const SYNC: u32 = 0xACAB_FEED;
/// The sync word in word 4 of EDV 0xAB, and at the start of every Mark 5B frame.
const MARK5B_SYNC: u32 = 0xABAD_DEED;

/// Words 4 to 7 of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    /// A legacy header, which has no such words.
    None,
    /// EDV 0. All zero by definition; real data has counters there, so the words are kept.
    Zero {
        /// Words 4 to 7, including the EDV byte.
        words: [u32; 4],
    },
    /// EDV 1, from NICT.
    Nict {
        /// The rate of samples.
        rate: SampleRate,
        /// The name of the acquisition system.
        das: [u8; 8],
    },
    /// EDV 2, of ALMA and of the R2DBE backends.
    AlmaR2dbe {
        /// The fields that differ between the two.
        backend: Backend,
        /// Packet sequence number: a second count to check the frame number by.
        psn: u64,
    },
    /// EDV 3, of the VLBA and VGOS.
    Vlba {
        /// The rate of samples.
        rate: SampleRate,
        /// Tuning of the local oscillator in 2⁻²⁴ MHz.
        lo_tuning: u32,
        /// Four unassigned bits.
        unassigned: u8,
        /// Digital backend (4 bits).
        dbe: u8,
        /// Intermediate frequency input (4 bits).
        intermediate: u8,
        /// Subband (3 bits).
        subband: u8,
        /// Upper sideband.
        upper_sideband: bool,
        /// Major revision (4 bits).
        major: u8,
        /// Minor revision (4 bits).
        minor: u8,
        /// Firmware personality.
        personality: u8,
    },
    /// EDV 4: some channels may have no data.
    Mask {
        /// Bits of the mask in use: the number of channels, or a divisor of it.
        length: u8,
        /// Sixteen unassigned bits.
        unassigned: u16,
        /// A set bit means that the data is valid.
        validity: u64,
    },
    /// EDV 0xAB: contains a Mark 5B header.
    Mark5b {
        /// User bits.
        user: u16,
        /// True if the samples come from a test vector generator.
        test_pattern: bool,
        /// Frame number within the second (15 bits), which must equal that of the VDIF header.
        frame: u16,
        /// Day and second in BCD: three digits of the modified Julian date, five of the second.
        time: u32,
        /// Four BCD digits after the second's decimal point.
        fraction: u16,
        /// CRC of the 48 bits of time and fraction.
        crc: u16,
    },
    /// Not registered, or not in the registered form.
    Unknown {
        /// The version's number.
        edv: u8,
        /// Words 4 to 7, including the EDV byte.
        words: [u32; 4],
    },
}

/// The sample rate of EDV 1 and 3. It counts complex samples: the rate of real samples is twice that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRate {
    /// True if the unit is 1 MHz, false for 1 kHz.
    pub in_mhz: bool,
    /// The number of units (23 bits).
    pub count: u32,
}

/// The writer of an EDV 2 header, by the sub-version in word 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Any sub-version but zero. Sources disagree on ALMA's own, so it is not checked.
    Alma {
        /// Sub-version (20 bits).
        version: u32,
        /// Polarisation (1 bit).
        polarisation: u8,
        /// Quadrant of the correlator, less one (2 bits).
        quadrant: u8,
        /// Correlator (1 bit).
        correlator: u8,
        /// Status of the phasing interface card.
        status: u32,
    },
    /// Sub-version zero.
    R2dbe {
        /// Polarisation (1 bit).
        polarisation: u8,
        /// Sideband of the block down-converter (1 bit).
        bdc_sideband: u8,
        /// Sideband of the receiver (1 bit).
        receiver_sideband: u8,
        /// One unassigned bit.
        unassigned: u8,
        /// Internal 1PPS less external, in ticks of 256 MHz.
        pps_ticks: i32,
    },
}

impl SampleRate {
    fn decode(word: u32) -> Self {
        SampleRate { in_mhz: bits(word, 23, 1) == 1, count: bits(word, 0, 23) }
    }

    fn encode(self) -> u32 {
        put(u32::from(self.in_mhz), 23, 1) | put(self.count, 0, 23)
    }

    /// Returns the rate in Hz.
    pub fn hz(self) -> u64 {
        u64::from(self.count) * if self.in_mhz { 1_000_000 } else { 1000 }
    }
}

impl Backend {
    fn decode(word4: u32, word5: u32) -> Self {
        let version = bits(word4, 4, 20);
        let bit = |at| bits(word4, at, 1) as u8;
        if version == 0 {
            return Backend::R2dbe {
                polarisation: bit(0),
                bdc_sideband: bit(1),
                receiver_sideband: bit(2),
                unassigned: bit(3),
                pps_ticks: word5.cast_signed(),
            };
        }
        Backend::Alma {
            version,
            polarisation: bit(0),
            quadrant: bits(word4, 1, 2) as u8,
            correlator: bit(3),
            status: word5,
        }
    }

    fn encode(self) -> (u32, u32) {
        match self {
            Backend::Alma { version, polarisation, quadrant, correlator, status } => {
                let word4 = put(version, 4, 20)
                    | put(polarisation, 0, 1)
                    | put(quadrant, 1, 2)
                    | put(correlator, 3, 1);
                (word4, status)
            }
            Backend::R2dbe {
                polarisation,
                bdc_sideband,
                receiver_sideband,
                unassigned,
                pps_ticks,
            } => {
                let word4 = put(polarisation, 0, 1)
                    | put(bdc_sideband, 1, 1)
                    | put(receiver_sideband, 2, 1)
                    | put(unassigned, 3, 1);
                (word4, pps_ticks.cast_unsigned())
            }
        }
    }
}

impl Extended {
    /// Decodes words 4 to 7 of a header that is not legacy.
    pub fn decode(words: [u32; 4]) -> Self {
        let [word4, word5, word6, word7] = words;
        let both = u64::from(word7) << 32 | u64::from(word6);
        match (bits(word4, 24, 8) as u8, word5) {
            (0, _) => Extended::Zero { words },
            (1, SYNC) => {
                Extended::Nict { rate: SampleRate::decode(word4), das: both.to_le_bytes() }
            }
            (2, _) => Extended::AlmaR2dbe { backend: Backend::decode(word4, word5), psn: both },
            (3, SYNC) => vlba(word4, word6, word7),
            (4, SYNC) => Extended::Mask {
                length: bits(word4, 16, 8) as u8,
                unassigned: bits(word4, 0, 16) as u16,
                validity: both,
            },
            (0xAB, _) if word4 == MARK5B_SYNC => Extended::Mark5b {
                user: bits(word5, 16, 16) as u16,
                test_pattern: bits(word5, 15, 1) == 1,
                frame: bits(word5, 0, 15) as u16,
                time: word6,
                fraction: bits(word7, 16, 16) as u16,
                crc: bits(word7, 0, 16) as u16,
            },
            (edv, _) => Extended::Unknown { edv, words },
        }
    }

    /// Returns the words as in a header. A value too large for its bits loses its upper ones.
    pub fn encode(self) -> [u32; 4] {
        let edv = put(self.edv(), 24, 8);
        match self {
            Extended::None => [0; 4],
            Extended::Zero { words: [first, rest @ ..] }
            | Extended::Unknown { words: [first, rest @ ..], .. } => {
                let [word5, word6, word7] = rest;
                [edv | put(first, 0, 24), word5, word6, word7]
            }
            Extended::Nict { rate, das } => {
                let (low, high) = halves(u64::from_le_bytes(das));
                [edv | rate.encode(), SYNC, low, high]
            }
            Extended::AlmaR2dbe { backend, psn } => {
                let (low, high) = halves(psn);
                let (word4, word5) = backend.encode();
                [edv | word4, word5, low, high]
            }
            Extended::Vlba {
                rate,
                lo_tuning,
                unassigned,
                dbe,
                intermediate,
                subband,
                upper_sideband,
                major,
                minor,
                personality,
            } => {
                let word7 = put(unassigned, 28, 4)
                    | put(dbe, 24, 4)
                    | put(intermediate, 20, 4)
                    | put(subband, 17, 3)
                    | put(upper_sideband, 16, 1)
                    | put(major, 12, 4)
                    | put(minor, 8, 4)
                    | put(personality, 0, 8);
                [edv | rate.encode(), SYNC, lo_tuning, word7]
            }
            Extended::Mask { length, unassigned, validity } => {
                let (low, high) = halves(validity);
                [edv | put(length, 16, 8) | put(unassigned, 0, 16), SYNC, low, high]
            }
            Extended::Mark5b { user, test_pattern, frame, time, fraction, crc } => {
                let word5 = put(user, 16, 16) | put(test_pattern, 15, 1) | put(frame, 0, 15);
                [MARK5B_SYNC, word5, time, put(fraction, 16, 16) | put(crc, 0, 16)]
            }
        }
    }

    /// Returns the extended data version; 0 for a legacy header too.
    pub fn edv(&self) -> u8 {
        match self {
            Extended::None | Extended::Zero { .. } => 0,
            Extended::Nict { .. } => 1,
            Extended::AlmaR2dbe { .. } => 2,
            Extended::Vlba { .. } => 3,
            Extended::Mask { .. } => 4,
            Extended::Mark5b { .. } => 0xAB,
            Extended::Unknown { edv, .. } => *edv,
        }
    }

    /// Returns the complex samples per second, if the version has them.
    pub fn sample_rate_hz(&self) -> Option<u64> {
        match self {
            Extended::Nict { rate, .. } | Extended::Vlba { rate, .. } => Some(rate.hz()),
            _ => None,
        }
    }

    /// Returns the packet sequence number of EDV 2.
    pub fn psn(&self) -> Option<u64> {
        match self {
            Extended::AlmaR2dbe { psn, .. } => Some(*psn),
            _ => None,
        }
    }
}

fn vlba(word4: u32, word6: u32, word7: u32) -> Extended {
    let part = |low, width| bits(word7, low, width) as u8;
    Extended::Vlba {
        rate: SampleRate::decode(word4),
        lo_tuning: word6,
        unassigned: part(28, 4),
        dbe: part(24, 4),
        intermediate: part(20, 4),
        subband: part(17, 3),
        upper_sideband: part(16, 1) == 1,
        major: part(12, 4),
        minor: part(8, 4),
        personality: part(0, 8),
    }
}

/// Returns the `width` bits of `word` from bit `low` on.
fn bits(word: u32, low: u32, width: u32) -> u32 {
    (word >> low) & (u32::MAX >> (32 - width))
}

/// Returns `value` cut to `width` bits and shifted to bit `low`.
fn put(value: impl Into<u32>, low: u32, width: u32) -> u32 {
    bits(value.into(), 0, width) << low
}

/// Returns the lower and the upper half.
fn halves(value: u64) -> (u32, u32) {
    (value as u32, (value >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Words with a version that is often registered, and a sync word that is often right.
    fn likely_words() -> impl Strategy<Value = [u32; 4]> {
        let version = prop_oneof![4 => Just(0), 4 => 1u32..5, 2 => Just(0xAB), 1 => 0u32..256];
        let fifth = prop_oneof![Just(SYNC), any::<u32>()];
        let fourth = prop_oneof![Just(MARK5B_SYNC & 0xFF_FFFF), any::<u32>()];
        (version, fourth, fifth, any::<[u32; 2]>()).prop_map(|(edv, four, five, [six, seven])| {
            [edv << 24 | (four & 0xFF_FFFF), five, six, seven]
        })
    }

    proptest! {
        #[test]
        fn every_bit_survives_decoding_and_encoding(words in likely_words()) {
            let extended = Extended::decode(words);
            prop_assert_eq!(extended.encode(), words);
            prop_assert_eq!(u32::from(extended.edv()), words[0] >> 24);
        }
    }

    #[test]
    fn a_broken_sync_word_makes_the_version_unknown_instead_of_an_error() {
        let words = [3 << 24 | 16_000, 0xACAB_FEEE, 1, 2];
        assert_eq!(Extended::decode(words), Extended::Unknown { edv: 3, words });
        assert_eq!(Extended::decode(words).sample_rate_hz(), None);
    }

    #[test]
    fn both_writers_of_version_2_carry_a_packet_sequence_number() {
        let alma = Extended::decode([0x02A5_EA53, 7, 9, 1]);
        assert_eq!(alma.psn(), Some(1 << 32 | 9));
        let Extended::AlmaR2dbe { backend, .. } = alma else { panic!("{alma:?}") };
        let expected = Backend::Alma {
            version: 0xA5EA5,
            polarisation: 1,
            quadrant: 1,
            correlator: 0,
            status: 7,
        };
        assert_eq!(backend, expected);
        let r2dbe = Extended::decode([0x0200_0005, u32::MAX, 9, 0]);
        let Extended::AlmaR2dbe { backend, .. } = r2dbe else { panic!("{r2dbe:?}") };
        let expected = Backend::R2dbe {
            polarisation: 1,
            bdc_sideband: 0,
            receiver_sideband: 1,
            unassigned: 0,
            pps_ticks: -1,
        };
        assert_eq!(backend, expected);
    }

    #[test]
    fn sample_rates_come_in_khz_and_mhz() {
        assert_eq!(SampleRate { in_mhz: true, count: 32 }.hz(), 32_000_000);
        assert_eq!(SampleRate { in_mhz: false, count: 16_000 }.hz(), 16_000_000);
    }
}
