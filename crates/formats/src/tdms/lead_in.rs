//! The 28 bytes that open a segment.

use super::TdmsError;
use super::bytes::Fields;

/// Bytes of a lead-in.
pub const LEAD_IN_BYTES: u64 = 28;

/// The length of a segment that is being written.
pub const UNKNOWN: u64 = u64::MAX;

/// What a segment has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// Metadata.
    pub const METADATA: Self = Self(2);
    /// The objects of this segment are a new list.
    pub const NEW_LIST: Self = Self(4);
    /// Raw data.
    pub const RAW_DATA: Self = Self(8);
    /// One value of each channel after the other.
    pub const INTERLEAVED: Self = Self(32);
    /// The highest byte of a number comes first.
    pub const BIG_ENDIAN: Self = Self(64);
    /// Raw data of DAQmx.
    pub const DAQMX: Self = Self(128);

    /// True if all of these are set.
    pub fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Both.
    pub fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }
}

/// A lead-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeadIn {
    /// What the segment has.
    pub flags: Flags,
    /// Bytes of metadata, padding and raw data; [`UNKNOWN`] while the segment is written.
    pub segment_bytes: u64,
    /// Bytes of metadata and padding.
    pub metadata_bytes: u64,
}

impl LeadIn {
    /// Reads the lead-in at an offset of the file.
    pub fn read(bytes: &[u8; LEAD_IN_BYTES as usize], at: u64) -> Result<Self, TdmsError> {
        let found = [bytes[0], bytes[1], bytes[2], bytes[3]];
        match &found {
            b"TDSm" => {}
            b"TDSh" if at == 0 => return Err(TdmsError::IsIndex),
            _ => return Err(TdmsError::NotASegment { at, found }),
        }
        let flags = Flags(u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]));
        let mut fields = Fields::new(&bytes[8..], at, flags.has(Flags::BIG_ENDIAN));
        let version = fields.u32("a lead-in")?;
        if !matches!(version, 4712 | 4713) {
            return Err(TdmsError::Version { at, version });
        }
        let all = fields.u64("a lead-in")?;
        let metadata = fields.u64("a lead-in")?;
        if metadata > all {
            return Err(TdmsError::Offsets { at, metadata, all });
        }
        Ok(Self { flags, segment_bytes: all, metadata_bytes: metadata })
    }

    /// The bytes of a lead-in, little-endian, of the data file or the index file.
    pub fn to_bytes(self, is_index: bool) -> [u8; LEAD_IN_BYTES as usize] {
        let mut bytes = [0; LEAD_IN_BYTES as usize];
        bytes[..4].copy_from_slice(if is_index { b"TDSh" } else { b"TDSm" });
        bytes[4..8].copy_from_slice(&self.flags.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&4713u32.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.segment_bytes.to_le_bytes());
        bytes[20..].copy_from_slice(&self.metadata_bytes.to_le_bytes());
        bytes
    }
}
