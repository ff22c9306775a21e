//! Messages to bytes.

use fullbore_core::block_set::BlockSet;
use fullbore_core::marker::moves_the_cursor;

use super::limits::{HEAD_BYTES, LONGEST_NAME, LONGEST_TEXT, body_bytes};
use super::message::{Message, Role};
use super::{MAGIC, ProtocolError};

impl Message {
    /// Appends the message to `out`. Names and texts that are too long are cut, and control characters in them become
    /// spaces. A message whose other contents are too large is an error, and `out` stays as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), ProtocolError> {
        let start = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES - 1]);
        out.push(self.kind() as u8);
        encode_body(self, out);
        let bytes = out.len() - start - HEAD_BYTES;
        let (_, most) = body_bytes(self.kind());
        if bytes > most {
            out.truncate(start);
            return Err(ProtocolError::TooLarge { message: self.name(), bytes, most });
        }
        // The kind counts too.
        out[start..start + 4].copy_from_slice(&(1 + bytes as u32).to_le_bytes());
        Ok(())
    }
}

fn encode_body(message: &Message, out: &mut Vec<u8>) {
    match message {
        Message::Hello { versions, role, secret, name } => {
            encode_hello(*versions, role, *secret, name, out);
        }
        Message::Welcome { version, name } => {
            out.extend_from_slice(&version.to_le_bytes());
            encode_name(name, out);
        }
        Message::Refuse { refusal, text } => {
            let text = printable(text, LONGEST_TEXT);
            out.push(*refusal as u8);
            out.extend_from_slice(&(text.len() as u16).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        Message::Offer { manifest, live, bytes } => {
            out.push(u8::from(*live));
            out.extend_from_slice(&bytes.to_le_bytes());
            out.extend_from_slice(manifest);
        }
        Message::Accept { token, connections, durable } => {
            let is_sorted = durable.is_sorted_by(|(stream, _), (next, _)| stream < next);
            assert!(is_sorted, "the sets of durable blocks are in the order of their streams");
            out.extend_from_slice(token);
            out.extend_from_slice(&connections.to_le_bytes());
            out.extend_from_slice(&(durable.len() as u32).to_le_bytes());
            for (stream, blocks) in durable {
                out.extend_from_slice(&stream.to_le_bytes());
                encode_set(blocks, out);
            }
        }
        Message::Update { manifest } => out.extend_from_slice(manifest),
        Message::Block { records, bytes } => {
            out.extend_from_slice(&bytes.to_le_bytes());
            out.extend_from_slice(records.as_flattened());
        }
        Message::Durable { stream, blocks } => {
            out.extend_from_slice(&stream.to_le_bytes());
            encode_set(blocks, out);
        }
        Message::Rejected { stream, sequence, text } => {
            out.extend_from_slice(&stream.to_le_bytes());
            out.extend_from_slice(&sequence.to_le_bytes());
            out.extend_from_slice(printable(text, LONGEST_TEXT).as_bytes());
        }
        Message::Records { records } => out.extend_from_slice(records.as_flattened()),
        Message::Account { stream, json } => {
            out.extend_from_slice(&stream.to_le_bytes());
            out.extend_from_slice(json);
        }
        Message::Seal { manifest, missing } => {
            out.extend_from_slice(&missing.to_le_bytes());
            out.extend_from_slice(manifest);
        }
        Message::Receipt { scan, blocks, bytes, digest, at } => {
            out.extend_from_slice(scan.as_bytes());
            out.extend_from_slice(&blocks.to_le_bytes());
            out.extend_from_slice(&bytes.to_le_bytes());
            out.extend_from_slice(digest);
            out.extend_from_slice(&at.0.to_le_bytes());
        }
        Message::Held { stream, sequence, bytes } => {
            out.extend_from_slice(&stream.to_le_bytes());
            out.extend_from_slice(&sequence.to_le_bytes());
            out.extend_from_slice(&bytes.to_le_bytes());
        }
        Message::Request { scan } => {
            out.extend_from_slice(printable(scan, LONGEST_NAME).as_bytes());
        }
        Message::List | Message::Bye => {}
        Message::Listing { json } => out.extend_from_slice(json),
        Message::Ping { number } | Message::Pong { number } => {
            out.extend_from_slice(&number.to_le_bytes());
        }
        Message::Probe { bytes } => out.extend_from_slice(&bytes.to_le_bytes()),
        Message::Received { bytes, elapsed_ns } => {
            out.extend_from_slice(&bytes.to_le_bytes());
            out.extend_from_slice(&elapsed_ns.to_le_bytes());
        }
    }
}

fn encode_hello(
    versions: (u16, u16),
    role: &Role,
    secret: Option<[u8; 16]>,
    name: &str,
    out: &mut Vec<u8>,
) {
    let (role, token) = match role {
        Role::Control => (0, [0; 16]),
        Role::Data(token) => (1, *token),
    };
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&versions.0.to_le_bytes());
    out.extend_from_slice(&versions.1.to_le_bytes());
    out.extend_from_slice(&[role, u8::from(secret.is_some())]);
    out.extend_from_slice(&token);
    out.extend_from_slice(&secret.unwrap_or_default());
    encode_name(name, out);
}

fn encode_name(name: &str, out: &mut Vec<u8>) {
    let name = printable(name, LONGEST_NAME);
    out.push(name.len() as u8);
    out.extend_from_slice(name.as_bytes());
}

fn encode_set(blocks: &BlockSet, out: &mut Vec<u8>) {
    out.extend_from_slice(&(blocks.runs().count() as u32).to_le_bytes());
    for run in blocks.runs() {
        out.extend_from_slice(&run.start.to_le_bytes());
        out.extend_from_slice(&(run.end - run.start).to_le_bytes());
    }
}

/// Returns the start of a text that has at most this many bytes, with spaces for characters that the other end refuses.
fn printable(text: &str, most: usize) -> String {
    let mut kept = String::new();
    for sign in text.chars().map(|sign| if moves_the_cursor(sign) { ' ' } else { sign }) {
        if kept.len() + sign.len_utf8() > most {
            break;
        }
        kept.push(sign);
    }
    kept
}
