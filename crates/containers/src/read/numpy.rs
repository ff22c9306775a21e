//! The header of a `.npy` file, versions 1 to 3 of numpy's format.
//!
//! ```text
//! \x93NUMPY, version (2 bytes), length (u16 of version 1, else u32), {'descr': '<i2', 'fortran_order': False, 'shape': (1000, 2), }
//! ```
//!
//! The header is a dictionary of Python. Only the three keys of the format are read, with a string, a truth value and
//! a tuple of whole numbers; anything else is refused.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use fullbore_formats::samples::{Code, Encoding, MOST_CHANNELS, SampleLayout};

use super::{ReadError, SampleFile, SampleRun, content};

/// The longest header, in bytes. That of an array of numbers has less than 200.
const LONGEST_HEADER: usize = 64 << 10;

/// The most axes of an array.
const MOST_AXES: usize = 32;

/// What a header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes before the values.
    pub bytes: u64,
    /// The samples.
    pub layout: SampleLayout,
    /// Samples of each channel.
    pub samples: u64,
}

/// Opens an array of one or two axes (samples, channels); of integers also of three, for real and imaginary parts.
pub fn open(path: &Path) -> Result<SampleFile, ReadError> {
    let failed = |source| ReadError::Io { path: path.to_owned(), source };
    let mut start = Vec::new();
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    file.take(LONGEST_HEADER as u64 + 12).read_to_end(&mut start).map_err(failed)?;
    let header = parse(&start).map_err(|why| content(path, why))?;
    let stated = header.samples.checked_mul(header.layout.sample_bits() / 8);
    let there = length.saturating_sub(header.bytes);
    let Some(bytes) = stated.filter(|bytes| *bytes <= there) else {
        let why = format!(
            "its header states {} samples, and only {there} bytes follow: it is cut",
            header.samples
        );
        return Err(content(path, why));
    };
    let more = there - bytes;
    let note =
        || format!("{more} bytes behind the array are left out: its header does not count them");
    Ok(SampleFile {
        path: path.to_owned(),
        skip: header.bytes,
        bytes,
        layout: header.layout,
        runs: vec![SampleRun { in_file: 0, in_stream: 0, time: None }],
        notes: if more > 0 { vec![note()] } else { Vec::new() },
    })
}

/// Reads a header from the first bytes of a file.
pub fn parse(file: &[u8]) -> Result<Header, String> {
    let not = || "it is not a file of numpy".to_owned();
    let rest = file.strip_prefix(b"\x93NUMPY").ok_or_else(not)?;
    let (length, begin) = match *rest {
        [1, _, low, high, ..] => (usize::from(u16::from_le_bytes([low, high])), 10),
        [2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([a, b, c, d]) as usize, 12),
        [version, ..] if version > 3 => {
            return Err(format!("it has version {version} of numpy's format, which is not known"));
        }
        _ => return Err(not()),
    };
    if length > LONGEST_HEADER {
        return Err(format!("its header has {length} bytes, more than {LONGEST_HEADER}"));
    }
    let text = file.get(begin..begin + length).ok_or("it ends within its header")?;
    let text = std::str::from_utf8(text).map_err(|_| "its header is not text")?;
    let (descr, fortran, shape) = Words(text)
        .header()
        .ok_or_else(|| "its header does not describe an array of numbers of one type".to_owned())?;
    let (layout, samples) = layout(descr, fortran, &shape)?;
    Ok(Header { bytes: (begin + length) as u64, layout, samples })
}

fn layout(descr: &str, fortran: bool, shape: &[u64]) -> Result<(SampleLayout, u64), String> {
    let encoding = encoding(descr)
        .ok_or_else(|| format!("values of the type `{}` are not supported", short(descr)))?;
    let is_integer = matches!(encoding.code, Code::Signed { .. } | Code::Unsigned { .. });
    let (samples, channels, complex) = match *shape {
        [samples] => (samples, 1, encoding.complex),
        [samples, channels] => (samples, channels, encoding.complex),
        [samples, channels, 2] if is_integer => (samples, channels, true),
        _ => return Err(format!("an array of {} axes is not samples by channels", shape.len())),
    };
    let channels = u32::try_from(channels).ok().filter(|it| (1..=MOST_CHANNELS).contains(it));
    let channels = channels
        .ok_or_else(|| format!("it has not 1 to {MOST_CHANNELS} channels (its second axis)"))?;
    if fortran && shape.iter().filter(|axis| **axis != 1).count() > 1 {
        return Err("its channels follow each other (fortran_order): save it in C order".into());
    }
    Ok((SampleLayout::new(Encoding { complex, ..encoding }, channels), samples))
}

fn short(text: &str) -> String {
    text.chars().take(16).collect()
}

/// The encoding of a type in numpy's words, such as `<i2`.
fn encoding(descr: &str) -> Option<Encoding> {
    let (order, kind) = descr.split_at_checked(1)?;
    let big_endian = match order {
        ">" => true,
        "<" | "|" => false,
        _ => return None,
    };
    let (code, complex) = match kind {
        "i1" => (Code::Signed { bytes: 1, big_endian: false }, false),
        "u1" => (Code::Unsigned { bytes: 1, big_endian: false }, false),
        _ if order == "|" => return None,
        "i2" => (Code::Signed { bytes: 2, big_endian }, false),
        "i4" => (Code::Signed { bytes: 4, big_endian }, false),
        "u2" => (Code::Unsigned { bytes: 2, big_endian }, false),
        "u4" => (Code::Unsigned { bytes: 4, big_endian }, false),
        "f4" => (Code::Float { bytes: 4, big_endian }, false),
        "f8" => (Code::Float { bytes: 8, big_endian }, false),
        "c8" => (Code::Float { bytes: 4, big_endian }, true),
        "c16" => (Code::Float { bytes: 8, big_endian }, true),
        _ => return None,
    };
    Some(Encoding { complex, code })
}

/// The rest of a header.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    /// The three values of the dictionary.
    fn header(mut self) -> Option<(&'a str, bool, Vec<u64>)> {
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        self.sign('{')?;
        while self.sign('}').is_none() {
            let key = self.string()?;
            self.sign(':')?;
            match key {
                "descr" if descr.is_none() => descr = Some(self.string()?),
                "fortran_order" if fortran.is_none() => fortran = Some(self.truth()?),
                "shape" if shape.is_none() => shape = Some(self.tuple()?),
                _ => return None,
            }
            if self.sign(',').is_none() {
                self.sign('}')?;
                break;
            }
        }
        self.0.trim().is_empty().then_some((descr?, fortran?, shape?))
    }

    fn sign(&mut self, sign: char) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(sign)?;
        Some(())
    }

    fn string(&mut self) -> Option<&'a str> {
        let text = self.0.trim_start();
        let quote = text.chars().next().filter(|it| matches!(it, '\'' | '"'))?;
        let (string, rest) = text[1..].split_once(quote)?;
        self.0 = rest;
        (!string.contains('\\')).then_some(string)
    }

    fn truth(&mut self) -> Option<bool> {
        let text = self.0.trim_start();
        let words = [("True", true), ("False", false)];
        let (rest, value) = words.iter().find_map(|it| Some((text.strip_prefix(it.0)?, it.1)))?;
        self.0 = rest;
        Some(value)
    }

    fn tuple(&mut self) -> Option<Vec<u64>> {
        self.sign('(')?;
        let mut axes = Vec::new();
        while self.sign(')').is_none() {
            let text = self.0.trim_start();
            let end = text.find(|it: char| !it.is_ascii_digit())?;
            axes.push(text[..end].parse().ok()?);
            // Headers of Python 2 have long integers.
            self.0 = text[end..].strip_prefix('L').unwrap_or(&text[end..]);
            if self.sign(',').is_none() {
                self.sign(')')?;
                break;
            }
            if axes.len() == MOST_AXES {
                return None;
            }
        }
        Some(axes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, text: &str) -> Vec<u8> {
        let mut file = b"\x93NUMPY".to_vec();
        file.extend([version, 0]);
        match version {
            1 => file.extend((text.len() as u16).to_le_bytes()),
            _ => file.extend((text.len() as u32).to_le_bytes()),
        }
        file.extend(text.bytes());
        file
    }

    fn read(text: &str) -> Result<(String, u64), String> {
        parse(&file(1, text)).map(|it| (it.layout.to_string(), it.samples))
    }

    #[test]
    fn headers_of_every_version_are_read() {
        let text = "{'descr': '<i2', 'fortran_order': False, 'shape': (1000, 2), }   \n";
        for (version, begin) in [(1, 10), (2, 12), (3, 12)] {
            let header = parse(&file(version, text)).unwrap();
            assert_eq!(header.bytes, (begin + text.len()) as u64);
            assert_eq!(
                (header.layout.to_string().as_str(), header.samples),
                ("2 channels of ri16_le", 1000)
            );
        }
        let of = |descr: &str, shape: &str| {
            read(&format!("{{'shape': {shape}, 'fortran_order': False, 'descr': \"{descr}\"}}"))
                .map(|it| it.0)
        };
        assert_eq!(of(">c8", "(5,)").unwrap(), "1 channel of cf32_be");
        assert_eq!(of("|i1", "(5L, 3)").unwrap(), "3 channels of ri8");
        assert_eq!(of("<i2", "(5, 3, 2)").unwrap(), "3 channels of ci16_le");
    }

    #[test]
    fn what_is_no_array_of_samples_is_refused() {
        let header = |descr: &str, order: &str, shape: &str| {
            read(&format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"))
        };
        for (descr, order, shape) in [
            ("'<f2'", "False", "(5,)"),
            ("'|O'", "False", "(5,)"),
            ("'=i2'", "False", "(5,)"),
            ("''", "False", "(5,)"),
            ("'é2'", "False", "(5,)"),
            ("[('a', '<i2')]", "False", "(5,)"),
            ("'<i2'", "False", "()"),
            ("'<i2'", "False", "(5, 0)"),
            ("'<i2'", "False", "(5, 65537)"),
            ("'<i2'", "False", "(-5,)"),
            ("'<i2'", "False", "(99999999999999999999,)"),
            ("'<f4'", "False", "(5, 1, 2)"),
            ("'<i2'", "True", "(5, 2)"),
            ("'<i2'", "None", "(5,)"),
            ("'<i2'", "False", "(5"),
        ] {
            assert!(header(descr, order, shape).is_err(), "{descr} {order} {shape}");
        }
        assert!(header("'<i2'", "True", "(5, 1)").is_ok());
        assert!(header("'<i2'", "False", &format!("({})", "1,".repeat(1000))).is_err());
        let whole = file(1, "{'descr': '<i2', 'fortran_order': False, 'shape': (5,), }");
        for end in 0..whole.len() {
            assert!(parse(&whole[..end]).is_err(), "{end} bytes");
        }
        assert!(parse(&file(4, "{}")).unwrap_err().contains("version 4"));
        assert!(parse(b"\x93NUMPY\x02\x00\xff\xff\xff\xff").unwrap_err().contains("more than"));
    }
}
