//! The leader of a block: the time and the size of an image.

use super::packet::{Content, Packet};

/// The payload type of an image.
const IMAGE: u16 = 1;

/// Bytes of an image's leader after the header.
pub const IMAGE_BYTES: usize = 36;

/// The size and the pixels of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The pixel format by the Pixel Format Naming Convention: bits 23 to 16 are the bits of a pixel.
    pub pixel_format: u32,
    /// Pixels of a line.
    pub width: u32,
    /// Lines.
    pub height: u32,
    /// The first column of the image on the sensor.
    pub x_offset: u32,
    /// The first line of the image on the sensor.
    pub y_offset: u32,
    /// Bytes after each line.
    pub x_padding: u16,
    /// Bytes after the image.
    pub y_padding: u16,
}

impl Layout {
    /// Bytes of the image with its padding; `None` if they are more than any camera sends.
    pub fn bytes(&self) -> Option<u64> {
        let bits = u64::from(self.pixel_format >> 16 & 0xFF) * u64::from(self.width);
        let line = bits.div_ceil(8) + u64::from(self.x_padding);
        // Lines without padding may share a byte.
        let all = match self.x_padding {
            0 => bits.checked_mul(self.height.into())?.div_ceil(8),
            _ => line.checked_mul(self.height.into())?,
        };
        all.checked_add(self.y_padding.into())
    }
}

/// The leader of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The payload type: 1 an image.
    pub payload_type: u16,
    /// The time in ticks of the camera's clock, which has an origin of its own; 0 if the leader is too short for one.
    pub ticks: u64,
    /// The layout of an image; `None` for other payloads.
    pub layout: Option<Layout>,
}

impl Leader {
    /// Reads a leader; `None` if the bytes are none, or an error instead of one.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let packet = Packet::read(bytes).ok()?;
        if packet.content != Content::Leader || packet.is_error() {
            return None;
        }
        let rest = &bytes[packet.header_bytes()..];
        let word = |at: usize| {
            let word = rest.get(at..at + 4)?;
            Some(u32::from_be_bytes(word.try_into().expect("four bytes")))
        };
        let payload_type = word(0)? as u16;
        let ticks = word(4).zip(word(8)).map(|(high, low)| u64::from(high) << 32 | u64::from(low));
        let layout = || {
            let padding = word(32)?;
            Some(Layout {
                pixel_format: word(12)?,
                width: word(16)?,
                height: word(20)?,
                x_offset: word(24)?,
                y_offset: word(28)?,
                x_padding: (padding >> 16) as u16,
                y_padding: padding as u16,
            })
        };
        let layout = (payload_type == IMAGE).then(layout).flatten();
        Some(Self { payload_type, ticks: ticks.unwrap_or_default(), layout })
    }

    /// Writes what follows the header; `None` if there is no room.
    pub fn write(&self, bytes: &mut [u8]) -> Option<usize> {
        let bytes = bytes.get_mut(..IMAGE_BYTES)?;
        let layout = self.layout?;
        let words = [
            u32::from(self.payload_type),
            (self.ticks >> 32) as u32,
            self.ticks as u32,
            layout.pixel_format,
            layout.width,
            layout.height,
            layout.x_offset,
            layout.y_offset,
            u32::from(layout.x_padding) << 16 | u32::from(layout.y_padding),
        ];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        Some(IMAGE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight bits of grey.
    const MONO_8: u32 = 0x0108_0001;

    fn layout(pixel_format: u32, width: u32, height: u32, x_padding: u16) -> Layout {
        Layout { pixel_format, width, height, x_offset: 3, y_offset: 4, x_padding, y_padding: 2 }
    }

    #[test]
    fn a_leader_is_read_as_written_and_a_short_one_has_no_layout() {
        let packet =
            Packet { status: 0, block: 9, packet: 0, extended: true, content: Content::Leader };
        let leader = Leader {
            payload_type: 1,
            ticks: 0x1234_5678_9ABC_DEF0,
            layout: Some(layout(MONO_8, 640, 480, 5)),
        };
        let mut bytes = [0; 56];
        packet.write(&mut bytes).unwrap();
        leader.write(&mut bytes[20..]).unwrap();
        assert_eq!(Leader::read(&bytes), Some(leader));
        for length in 0..56 {
            let read = Leader::read(&bytes[..length]);
            assert_eq!(read.is_some(), length >= 24, "{length}");
            assert_eq!(read.and_then(|leader| leader.layout), None, "{length}");
        }
    }

    #[test]
    fn bytes_of_an_image_are_those_of_its_pixels_and_its_padding() {
        assert_eq!(layout(MONO_8, 640, 480, 0).bytes(), Some(640 * 480 + 2));
        assert_eq!(layout(MONO_8, 640, 480, 4).bytes(), Some(644 * 480 + 2));
        // Twelve bits, packed.
        assert_eq!(layout(0x010C_0006, 3, 3, 0).bytes(), Some(14 + 2));
        assert_eq!(layout(0x01FF_0001, u32::MAX, u32::MAX, 9).bytes(), None);
    }
}
