//! The registers of two features, found in a camera's description of itself.
//!
//! A camera describes its registers by an XML file of the GenICam standard (GenApi). Here it is read for commands only:
//!
//! ```text
//! <Command Name="AcquisitionStart"> <pValue>StartRegister</pValue> <CommandValue>1</CommandValue> </Command>
//! <IntReg Name="StartRegister"> <Address>0x124</Address> <Endianess>BigEndian</Endianess> </IntReg>
//! ```
//!
//! An address may be a sum, of which a part is the value of an `Integer`. Addresses by a formula are refused, with the
//! name of the feature: an endpoint can give the register instead.

use std::collections::HashMap;

use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

/// The most features in a description.
const MOST_NODES: usize = 100_000;

/// The longest way from a command to its register.
const DEEPEST: usize = 16;

/// The reason why a feature has no register.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GenicamError {
    /// The description is not XML.
    #[error("the camera's description of its registers cannot be read: {0}")]
    Xml(String),
    /// The description lacks the feature.
    #[error("the camera's description has no feature `{0}`")]
    Absent(String),
    /// The register of the feature cannot be found without more of GenICam.
    #[error("the register of `{feature}` depends on `{node}`, {why}")]
    Unsupported {
        /// The feature that was looked for.
        feature: String,
        /// The feature where the way ends.
        node: String,
        /// The reason.
        why: &'static str,
    },
}

/// A value for a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The address of the register.
    pub address: u32,
    /// The value.
    pub value: u32,
}

/// A feature or register of the description.
#[derive(Debug, Default)]
struct Node {
    kind: String,
    addresses: Vec<i64>,
    address_nodes: Vec<String>,
    value: Option<i64>,
    value_node: Option<String>,
    command_value: Option<i64>,
    command_value_node: Option<String>,
    length: Option<i64>,
    is_little_endian: bool,
    /// True if a part of the register is meant, or the address has an index.
    is_partial: bool,
    /// True if an address is no number.
    is_unreadable: bool,
}

impl Node {
    fn take(&mut self, tag: &str, text: &str) {
        let number = number(text);
        match tag {
            "Address" => match number {
                Some(number) => self.addresses.push(number),
                None => self.is_unreadable = true,
            },
            "pAddress" => self.address_nodes.push(text.to_owned()),
            "Value" => self.value = number,
            "pValue" => self.value_node = Some(text.to_owned()),
            "CommandValue" => self.command_value = number,
            "pCommandValue" => self.command_value_node = Some(text.to_owned()),
            "Length" => self.length = number,
            "Endianess" => self.is_little_endian = text == "LittleEndian",
            "LSB" | "MSB" | "Bit" | "pIndex" => self.is_partial = true,
            _ => {}
        }
    }
}

/// A number as XML files of cameras write it.
fn number(text: &str) -> Option<i64> {
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The description of a camera.
#[derive(Debug, Default)]
pub struct Features {
    nodes: HashMap<String, Node>,
}

impl Features {
    /// Reads a description. Bytes that are not UTF-8 are replaced.
    pub fn read(bytes: &[u8]) -> Result<Self, GenicamError> {
        let text = String::from_utf8_lossy(bytes);
        let mut reader = Reader::from_str(&text);
        let mut features = Self::default();
        // The node that is open, and the tag within it.
        let (mut open, mut tag): (Option<(String, Node)>, Option<String>) = (None, None);
        let mut depth = 0_usize;
        let mut node_depth = 0;
        loop {
            let event =
                reader.read_event().map_err(|error| GenicamError::Xml(error.to_string()))?;
            match event {
                Event::Start(start) => {
                    depth += 1;
                    let kind = local_name(&start);
                    match (&open, name(&start)) {
                        (None, Some(name)) => {
                            open = Some((name, Node { kind, ..Node::default() }));
                            node_depth = depth;
                        }
                        (Some(_), _) if depth == node_depth + 1 => tag = Some(kind),
                        _ => {}
                    }
                }
                Event::Text(words) => {
                    if let (Some((_, node)), Some(tag)) = (&mut open, &tag) {
                        node.take(tag, String::from_utf8_lossy(words.as_ref().as_ref()).trim());
                    }
                }
                Event::End(_) => {
                    if depth == node_depth + 1 {
                        tag = None;
                    }
                    if depth == node_depth
                        && let Some((name, node)) = open.take()
                    {
                        features.add(name, node)?;
                    }
                    depth = depth.saturating_sub(1);
                }
                Event::Eof => return Ok(features),
                _ => {}
            }
        }
    }

    fn add(&mut self, name: String, node: Node) -> Result<(), GenicamError> {
        if self.nodes.len() >= MOST_NODES {
            return Err(GenicamError::Xml(format!("it has more than {MOST_NODES} features")));
        }
        self.nodes.insert(name, node);
        Ok(())
    }

    /// Returns the register of a command, and the value that executes it.
    pub fn command(&self, feature: &str) -> Result<Write, GenicamError> {
        let way = Way { feature, features: self };
        let command = way.node(feature)?;
        let register = command
            .value_node
            .as_deref()
            .ok_or_else(|| way.ends(feature, "which has no register"))?;
        let value = match (&command.command_value_node, command.command_value) {
            (Some(node), _) => way.integer(node, 0)?,
            (None, value) => value.unwrap_or(1),
        };
        way.register(register, value, 0)
    }

    /// Returns the write of a value to the register of an integer; `None` if it has none.
    pub fn integer(&self, feature: &str, value: i64) -> Option<Write> {
        let way = Way { feature, features: self };
        way.register(feature, value, 0).ok()
    }
}

/// The way from a feature to its register.
struct Way<'a> {
    feature: &'a str,
    features: &'a Features,
}

impl Way<'_> {
    fn ends(&self, node: &str, why: &'static str) -> GenicamError {
        GenicamError::Unsupported { feature: self.feature.to_owned(), node: node.to_owned(), why }
    }

    fn node(&self, name: &str) -> Result<&Node, GenicamError> {
        self.features.nodes.get(name).ok_or_else(|| GenicamError::Absent(name.to_owned()))
    }

    fn integer(&self, name: &str, depth: usize) -> Result<i64, GenicamError> {
        let node = self.node(name)?;
        match (node.value, &node.value_node) {
            (Some(value), _) => Ok(value),
            (None, Some(next)) if depth < DEEPEST => self.integer(next, depth + 1),
            _ => Err(self.ends(name, "whose value is not in the description")),
        }
    }

    fn register(&self, name: &str, value: i64, depth: usize) -> Result<Write, GenicamError> {
        let node = self.node(name)?;
        match (node.kind.as_str(), &node.value_node) {
            ("IntReg" | "MaskedIntReg", _) => {}
            (_, Some(next)) if depth < DEEPEST => return self.register(next, value, depth + 1),
            _ => return Err(self.ends(name, "which is no register")),
        }
        if node.is_partial || node.length.is_some_and(|bytes| bytes != 4) {
            return Err(self.ends(name, "which is not one whole register of 32 bits"));
        }
        if node.is_unreadable {
            return Err(self.ends(name, "whose address is no number"));
        }
        let mut address: i64 = 0;
        for part in &node.addresses {
            address = address.saturating_add(*part);
        }
        for part in &node.address_nodes {
            address = address.saturating_add(self.integer(part, 0)?);
        }
        if node.addresses.is_empty() && node.address_nodes.is_empty() {
            return Err(self.ends(name, "which has no address"));
        }
        let address = u32::try_from(address)
            .map_err(|_| self.ends(name, "whose address has more than 32 bits"))?;
        // A negative value has its 32 bits.
        let value = value as u32;
        let value = if node.is_little_endian { value.swap_bytes() } else { value };
        Ok(Write { address, value })
    }
}

fn local_name(start: &BytesStart<'_>) -> String {
    String::from_utf8_lossy(start.local_name().as_ref().as_ref()).into_owned()
}

fn name(start: &BytesStart<'_>) -> Option<String> {
    let mut attributes = start.attributes();
    let attributes = attributes.with_checks(false).filter_map(Result::ok);
    let mut names = attributes.filter(|attribute| {
        let key: &[u8] = attribute.key.as_ref().as_ref();
        key == b"Name"
    });
    let value = names.next()?.value;
    Some(String::from_utf8_lossy(value.as_ref().as_ref()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(nodes: &str) -> Features {
        let text = format!(
            r#"<?xml version="1.0"?><RegisterDescription ModelName="x"><Category Name="Root"><pFeature>A</pFeature></Category>
            <Group Comment="Acquisition">{nodes}</Group></RegisterDescription>"#
        );
        Features::read(text.as_bytes()).unwrap()
    }

    const START: &str = r#"<Command Name="Start" NameSpace="Standard"><ToolTip>Starts.</ToolTip><pValue>Reg</pValue>
        <CommandValue>5</CommandValue></Command>"#;

    #[test]
    fn a_command_is_found_at_the_sum_of_its_addresses() {
        let features = description(&format!(
            r#"{START}<Integer Name="Base"><Value>0x1000</Value></Integer>
            <IntReg Name="Reg"><Address>0x124</Address><pAddress>Base</pAddress><Length>4</Length>
            <Endianess>BigEndian</Endianess></IntReg>"#
        ));
        assert_eq!(features.command("Start"), Ok(Write { address: 0x1124, value: 5 }));
        assert_eq!(features.command("Stop"), Err(GenicamError::Absent("Stop".into())));
    }

    #[test]
    fn a_register_that_is_little_endian_gets_its_bytes_swapped() {
        let features = description(&format!(
            r#"{START}<IntReg Name="Reg"><Address>8</Address><Endianess>LittleEndian</Endianess></IntReg>
            <Integer Name="Lock"><pValue>Reg</pValue></Integer>"#
        ));
        let write = |value| Write { address: 8, value };
        assert_eq!(features.command("Start"), Ok(write(0x0500_0000)));
        assert_eq!(features.integer("Lock", 1), Some(write(0x0100_0000)));
        assert_eq!(features.integer("Unlock", 1), None);
    }

    #[test]
    fn what_needs_more_of_genicam_is_refused_by_name() {
        for (nodes, why) in [
            (
                r#"<IntReg Name="Reg"><pAddress>F</pAddress></IntReg><IntSwissKnife Name="F"><Formula>1+1</Formula></IntSwissKnife>"#,
                "`F`, whose value is not",
            ),
            (
                r#"<MaskedIntReg Name="Reg"><Address>4</Address><Bit>3</Bit></MaskedIntReg>"#,
                "one whole register",
            ),
            (
                r#"<IntReg Name="Reg"><Address>4</Address><Length>8</Length></IntReg>"#,
                "one whole register",
            ),
            (r#"<IntReg Name="Reg"><Length>4</Length></IntReg>"#, "no address"),
            (r#"<IntReg Name="Reg"><Address>-4</Address></IntReg>"#, "32 bits"),
            (
                r#"<IntReg Name="Reg"><Address>4</Address><Address>0x1G</Address></IntReg>"#,
                "no number",
            ),
            (r#"<Integer Name="Reg"><pValue>Reg</pValue></Integer>"#, "no register"),
            ("", "no feature `Reg`"),
        ] {
            let error = description(&format!("{START}{nodes}")).command("Start").unwrap_err();
            assert!(error.to_string().contains(why), "{nodes}: {error}");
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        let text = format!("<RegisterDescription>{START}</RegisterDescription>");
        for end in 0..text.len() {
            let _ = Features::read(&text.as_bytes()[..end]);
        }
        assert!(Features::read(b"<a></b>").is_err());
    }
}
