//! The header in XML, parsed and written.

use std::fmt::Write;

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use super::header::{Header, Kind, Process};
use super::header_builder::{self, HeaderError, LONGEST_HEADER, Words};
use super::text::general;

impl Header {
    /// Parses the XML from `<header>` to `</header>`. Servers cut units in the middle of a character, so bytes that are
    /// not UTF-8 are replaced first.
    pub fn from_xml(bytes: &[u8]) -> Result<Header, HeaderError> {
        if bytes.len() > LONGEST_HEADER {
            return Err(HeaderError::TooLong);
        }
        let text = String::from_utf8_lossy(bytes);
        let mut reader = Reader::from_str(&text);
        let mut open: Vec<String> = Vec::new();
        let mut data: Option<Words> = None;
        let mut fields: Vec<Words> = Vec::new();
        loop {
            let event = reader.read_event().map_err(|error| bad(error.to_string()))?;
            let (tag, stays_open) = match &event {
                Event::Start(tag) => (tag, true),
                Event::Empty(tag) => (tag, false),
                Event::End(_) => {
                    open.pop();
                    continue;
                }
                Event::Eof if open.is_empty() => break,
                Event::Eof => return Err(bad("it ends before its last tag is closed".to_owned())),
                _ => continue,
            };
            let name = String::from_utf8_lossy(tag.local_name().as_ref().as_ref()).into_owned();
            let path: Vec<&str> = open.iter().map(String::as_str).collect();
            match (path.as_slice(), name.as_str()) {
                (["header"], "data") if data.is_none() => data = Some(words(tag)?),
                (["header"], "data") => return Err(bad("`data` comes twice".to_owned())),
                (["header", "fields"], "field") => fields.push(words(tag)?),
                ([], "header") => {}
                ([], other) => return Err(bad(format!("it begins with `{other}`"))),
                _ => {}
            }
            if stays_open {
                open.push(name);
            }
            if open.len() > DEEPEST {
                return Err(bad("its tags are nested too deep".to_owned()));
            }
        }
        let data = data.ok_or_else(|| HeaderError::Absent { what: "data".to_owned() })?;
        header_builder::header(&data, &fields)
    }

    /// Returns the header as a current server writes it, without the line feed after it.
    pub fn to_xml(&self) -> String {
        let mut xml = String::from("<header>\n<data ");
        for (name, value) in self.facts() {
            let _ = write!(xml, "{name}=\"{value}\" ");
        }
        xml.push_str("/>\n<fields>\n");
        for field in &self.fields {
            let name = quick_xml::escape::escape(field.name.as_str());
            let capture = quick_xml::escape::escape(field.capture.as_str());
            let kind = field.kind;
            let _ = write!(xml, "<field name=\"{name}\" type=\"{kind}\" capture=\"{capture}\" ");
            if let Some(scaling) = &field.scaling {
                let units = quick_xml::escape::escape(scaling.units.as_str());
                let (scale, offset) = (general(scaling.scale, 12), general(scaling.offset, 12));
                let _ = write!(xml, "scale=\"{scale}\" offset=\"{offset}\" units=\"{units}\" ");
            }
            xml.push_str("/>\n");
        }
        xml.push_str("</fields>\n</header>\n");
        xml
    }
}

/// The maximum depth of tags in a header.
const DEEPEST: usize = 8;

fn words(tag: &BytesStart<'_>) -> Result<Words, HeaderError> {
    tag.attributes()
        .map(|attribute| {
            let attribute = attribute.map_err(|error| bad(error.to_string()))?;
            let name = String::from_utf8_lossy(attribute.key.as_ref().as_ref()).into_owned();
            let value = attribute.normalized_value(XmlVersion::Implicit1_0);
            let value = value.map_err(|error| bad(error.to_string()))?;
            Ok((name, value.into_owned()))
        })
        .collect()
}

fn bad(what: String) -> HeaderError {
    HeaderError::Xml { what }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Process::Raw => "Raw",
            Process::Scaled => "Scaled",
        })
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::Uint32 => "uint32",
            Kind::Int32 => "int32",
            Kind::Int64 => "int64",
            Kind::Int96 => "int96",
            Kind::Double => "double",
        })
    }
}
