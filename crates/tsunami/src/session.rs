//! The server's end of a control connection, as a pure machine: bytes in, actions out.

use subtle::ConstantTimeEq;

use crate::codec::{
    self, ALL, BAD_PROOF, CHALLENGE_BYTES, DIRECTORY, Feedback, FileHead, GOOD, Inbox,
    LONGEST_NAME, NOT_READABLE, Parameters, REVISION,
};
use fullbore_transfer::files::Listed;

/// What the server has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send these bytes to the client.
    Send(Vec<u8>),
    /// List the files, and call [`Session::listed`].
    List,
    /// Open this file, and call [`Session::opened`].
    Open(String),
    /// Send the file to this UDP port.
    Begin {
        /// The file.
        head: FileHead,
        /// What the client asked for.
        parameters: Parameters,
        /// The client's port.
        port: u16,
    },
    /// The client says something about the transfer. [`Feedback::Stop`] ends it.
    Feedback(Feedback),
    /// Close the connection, because of this.
    Close(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Revision,
    Proof,
    Name,
    /// The answer to the list waits for the files.
    Listing {
        sizes: bool,
    },
    /// The client acknowledges with eight bytes: the sizes, or the list.
    GotSize,
    GotList,
    /// The client acknowledges with one byte.
    GotDirectory,
    Opening,
    Parameters {
        length: u64,
    },
    Port {
        head: FileHead,
        parameters: Parameters,
    },
    Sending {
        blocks: u32,
    },
    Over,
}

/// A control connection.
#[derive(Debug)]
pub struct Session {
    stage: Stage,
    inbox: Inbox,
    challenge: [u8; CHALLENGE_BYTES],
    secret: Vec<u8>,
    /// The names for a client that has not acknowledged the size of the list.
    names: Vec<u8>,
    /// Unix seconds, which go into the heads of files.
    epoch: u32,
}

impl Session {
    /// A new connection, and the first bytes for the client. The challenge is random.
    pub fn begin(challenge: [u8; CHALLENGE_BYTES], secret: &[u8], epoch: u32) -> (Self, Vec<u8>) {
        let session = Self {
            stage: Stage::Revision,
            inbox: Inbox::default(),
            challenge,
            secret: secret.to_vec(),
            names: Vec::new(),
            epoch,
        };
        (session, REVISION.to_be_bytes().to_vec())
    }

    /// True if the client has proved that it knows the secret.
    pub fn is_known(&self) -> bool {
        !matches!(self.stage, Stage::Revision | Stage::Proof | Stage::Over)
    }

    /// True if the next word is a request, for which a user may need time.
    pub fn is_between_files(&self) -> bool {
        self.stage == Stage::Name
    }

    /// Takes bytes of the client.
    pub fn step(&mut self, bytes: &[u8]) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.stage == Stage::Over {
            return actions;
        }
        match self.inbox.push(bytes) {
            true => self.advance(&mut actions),
            false => self.close("more bytes than any request has".to_owned(), &mut actions),
        }
        actions
    }

    /// Takes the files asked for by [`Action::List`].
    pub fn listed(&mut self, files: &[Listed]) -> Vec<Action> {
        let Stage::Listing { sizes } = self.stage else { return Vec::new() };
        let mut actions = Vec::new();
        if sizes {
            let mut text = format!("{}\0", files.len());
            for Listed { name, bytes } in files {
                text += &format!("{name}\0{bytes}\0");
            }
            actions.push(Action::Send(text.into_bytes()));
            self.stage = Stage::GotDirectory;
        } else {
            self.names = files.iter().flat_map(|it| [it.name.as_bytes(), b"\0"].concat()).collect();
            let mut sizes = [0; 20];
            put_number(&mut sizes[..10], self.names.len());
            put_number(&mut sizes[10..], files.len());
            actions.push(Action::Send(sizes.to_vec()));
            self.stage = Stage::GotSize;
        }
        self.advance(&mut actions);
        actions
    }

    /// Takes the length of the file asked for by [`Action::Open`]; `None` if it is not readable.
    pub fn opened(&mut self, length: Option<u64>) -> Vec<Action> {
        let mut actions = Vec::new();
        // The client of the protocol cannot receive a file without blocks.
        match length.filter(|length| *length > 0) {
            _ if self.stage != Stage::Opening => return actions,
            Some(length) => {
                actions.push(Action::Send(vec![GOOD]));
                self.stage = Stage::Parameters { length };
            }
            None => {
                actions.push(Action::Send(vec![NOT_READABLE]));
                self.stage = Stage::Name;
            }
        }
        self.advance(&mut actions);
        actions
    }

    fn close(&mut self, why: String, actions: &mut Vec<Action>) {
        self.stage = Stage::Over;
        actions.push(Action::Close(why));
    }

    fn advance(&mut self, actions: &mut Vec<Action>) {
        while self.one(actions).is_some() {}
    }

    /// Takes one message. `None` if there is none, or if it cannot be taken now.
    fn one(&mut self, actions: &mut Vec<Action>) -> Option<()> {
        match self.stage {
            Stage::Revision => {
                let revision = u32::from_be_bytes(self.inbox.take()?);
                if revision != REVISION {
                    self.close(format!("its revision is {revision:#x}"), actions);
                } else {
                    actions.push(Action::Send(self.challenge.to_vec()));
                    self.stage = Stage::Proof;
                }
            }
            Stage::Proof => {
                let given: [u8; 16] = self.inbox.take()?;
                let good = given.ct_eq(&codec::proof(&self.challenge, &self.secret)).into();
                actions.push(Action::Send(vec![if good { GOOD } else { BAD_PROOF }]));
                self.stage = Stage::Name;
                if !good {
                    self.close("it does not know the secret".to_owned(), actions);
                }
            }
            Stage::Name => match self.inbox.take_text(b'\n', LONGEST_NAME)? {
                Ok(name) => self.request(&name, actions),
                Err(_) => self.close("a name without an end".to_owned(), actions),
            },
            Stage::GotSize => {
                self.inbox.take::<8>()?;
                actions.push(Action::Send(std::mem::take(&mut self.names)));
                self.stage = Stage::GotList;
            }
            Stage::GotList => {
                self.inbox.take::<8>()?;
                self.stage = Stage::Name;
            }
            Stage::GotDirectory => {
                self.inbox.take::<1>()?;
                self.stage = Stage::Name;
            }
            Stage::Parameters { length } => {
                let parameters = Parameters::decode(&self.inbox.take()?);
                self.parameters(length, parameters, actions);
            }
            Stage::Port { head, parameters } => {
                let port = u16::from_be_bytes(self.inbox.take()?);
                if port == 0 {
                    self.close("port 0".to_owned(), actions);
                } else {
                    self.stage = Stage::Sending { blocks: head.blocks };
                    actions.push(Action::Begin { head, parameters, port });
                }
            }
            Stage::Sending { blocks } => {
                let bytes = self.inbox.take()?;
                self.feedback(Feedback::decode(&bytes), blocks, actions);
            }
            Stage::Listing { .. } | Stage::Opening | Stage::Over => return None,
        }
        Some(())
    }

    fn request(&mut self, name: &[u8], actions: &mut Vec<Action>) {
        match str::from_utf8(name) {
            Ok(text @ (ALL | DIRECTORY)) => {
                self.stage = Stage::Listing { sizes: text == DIRECTORY };
                actions.push(Action::List);
            }
            Ok(text) => {
                self.stage = Stage::Opening;
                actions.push(Action::Open(text.to_owned()));
            }
            // No file of a store has such a name.
            Err(_) => actions.push(Action::Send(vec![NOT_READABLE])),
        }
    }

    fn parameters(&mut self, length: u64, parameters: Parameters, actions: &mut Vec<Action>) {
        if let Some(fault) = parameters.fault() {
            return self.close(format!("it asks for {fault}"), actions);
        }
        match FileHead::of(length, parameters.block, self.epoch) {
            Some(head) => {
                actions.push(Action::Send(head.encode().to_vec()));
                self.stage = Stage::Port { head, parameters };
            }
            None => {
                let why = format!(
                    "blocks of {} bytes are too small for {length} bytes",
                    parameters.block
                );
                self.close(why, actions);
            }
        }
    }

    fn feedback(&mut self, feedback: Option<Feedback>, blocks: u32, actions: &mut Vec<Action>) {
        match feedback {
            None => self.close("an unknown request".to_owned(), actions),
            Some(Feedback::Resend(block) | Feedback::Restart(block))
                if block == 0 || block > blocks =>
            {
                self.close(format!("it asks for block {block} of {blocks}"), actions);
            }
            Some(feedback) => {
                if feedback == Feedback::Stop {
                    self.stage = Stage::Name;
                }
                actions.push(Action::Feedback(feedback));
            }
        }
    }
}

/// A number as ten characters, filled with zero bytes.
fn put_number(into: &mut [u8], number: usize) {
    let text = number.to_string();
    let count = text.len().min(into.len());
    into[..count].copy_from_slice(&text.as_bytes()[..count]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHALLENGE: [u8; 64] = [9; 64];

    fn begin() -> Session {
        Session::begin(CHALLENGE, b"kitten", 77).0
    }

    fn greeting() -> Vec<u8> {
        let proof = codec::proof(&CHALLENGE, b"kitten");
        [&REVISION.to_be_bytes()[..], &proof].concat()
    }

    fn files() -> Vec<Listed> {
        [("a_b/c.vdif", 2500), ("a_b/d.vdif", 1)]
            .map(|(name, bytes)| Listed { name: name.to_owned(), bytes })
            .into()
    }

    /// Gives bytes to a session, and answers its requests from the files.
    fn give(session: &mut Session, bytes: &[u8]) -> Vec<Action> {
        let mut all = Vec::new();
        let mut todo: std::collections::VecDeque<_> = session.step(bytes).into();
        while let Some(action) = todo.pop_front() {
            let more = match &action {
                Action::List => session.listed(&files()),
                Action::Open(name) => {
                    let file = files().into_iter().find(|it| it.name == *name);
                    session.opened(file.map(|it| it.bytes))
                }
                _ => Vec::new(),
            };
            all.push(action);
            todo.extend(more);
        }
        all
    }

    /// Everything that a client can say in one connection, in order.
    fn conversation() -> Vec<u8> {
        let mut said = greeting();
        said.extend(b"!#DIR??\n1*\ngot sizegot list../../etc/passwd\na_b/c.vdif\n");
        said.extend(Parameters::usual(1000, 1_000_000).encode());
        said.extend(4242u16.to_be_bytes());
        for feedback in
            [Feedback::ErrorRate(5), Feedback::Resend(3), Feedback::Restart(1), Feedback::Stop]
        {
            said.extend(feedback.encode());
        }
        said.extend(b"a_b/c.vdif\n");
        said
    }

    #[test]
    fn a_conversation_has_the_bytes_of_the_protocol() {
        let actions = give(&mut begin(), &conversation());
        let head = FileHead { length: 2500, block: 1000, blocks: 3, epoch: 77 };
        let sent = |bytes: &[u8]| Action::Send(bytes.to_vec());
        let parameters = Parameters::usual(1000, 1_000_000);
        let expected = [
            sent(&CHALLENGE),
            sent(&[0]),
            Action::List,
            sent(b"2\0a_b/c.vdif\x002500\0a_b/d.vdif\x001\0"),
            Action::List,
            sent(b"22\0\0\0\0\0\0\0\x002\0\0\0\0\0\0\0\0\0"),
            sent(b"a_b/c.vdif\0a_b/d.vdif\0"),
            Action::Open("../../etc/passwd".to_owned()),
            sent(&[8]),
            Action::Open("a_b/c.vdif".to_owned()),
            sent(&[0]),
            sent(&head.encode()),
            Action::Begin { head, parameters, port: 4242 },
            Action::Feedback(Feedback::ErrorRate(5)),
            Action::Feedback(Feedback::Resend(3)),
            Action::Feedback(Feedback::Restart(1)),
            Action::Feedback(Feedback::Stop),
            Action::Open("a_b/c.vdif".to_owned()),
            sent(&[0]),
        ];
        assert_eq!(actions, expected);
    }

    #[test]
    fn a_name_that_is_not_utf8_is_not_readable_and_does_not_grow() {
        let mut session = begin();
        let mut said = REVISION.to_be_bytes().to_vec();
        said.extend_from_slice(&codec::proof(&CHALLENGE, b"kitten"));
        session.step(&said);
        let name = [&[0xff; LONGEST_NAME][..], b"\n"].concat();
        assert_eq!(session.step(&name), [Action::Send(vec![NOT_READABLE])]);
        let next = session.step(b"c.vdif\n");
        assert_eq!(next, [Action::Open("c.vdif".to_owned())]);
    }

    #[test]
    fn any_split_of_the_bytes_gives_the_same_actions() {
        let said = conversation();
        let whole = give(&mut begin(), &said);
        for split in 0..=said.len() {
            let mut session = begin();
            let mut actions = give(&mut session, &said[..split]);
            actions.extend(give(&mut session, &said[split..]));
            assert_eq!(actions, whole, "split at {split}");
        }
        let mut session = begin();
        let single: Vec<Action> =
            said.chunks(1).flat_map(|byte| give(&mut session, byte)).collect();
        assert_eq!(single, whole);
    }

    fn closes(said: &[u8]) -> String {
        let mut session = begin();
        let actions = give(&mut session, said);
        let Some(Action::Close(why)) = actions.last() else { panic!("not closed: {actions:?}") };
        assert_eq!(session.step(&conversation()), [], "nothing is answered after it");
        why.clone()
    }

    #[test]
    fn what_is_not_of_the_protocol_closes_the_connection() {
        assert!(closes(&[0; 4]).contains("revision"));
        let wrong = [&REVISION.to_be_bytes()[..], &codec::proof(&CHALLENGE, b"dog")].concat();
        assert!(closes(&wrong).contains("secret"));
        assert!(closes(&[&greeting()[..], &[b'a'; 2000]].concat()).contains("without an end"));
        let asked = [&greeting()[..], b"a_b/c.vdif\n"].concat();
        let with = |parameters: Parameters| [&asked[..], &parameters.encode()].concat();
        let usual = Parameters::usual(1000, 1_000_000);
        assert!(closes(&with(Parameters { rate: 0, ..usual })).contains("rate of 0"));
        assert!(closes(&with(Parameters { block: 0, ..usual })).contains("block size"));
        assert!(closes(&with(Parameters { block: 65_531, ..usual })).contains("block size"));
        assert!(closes(&[&with(usual)[..], &[0, 0]].concat()).contains("port 0"));
        let begun = [&with(usual)[..], &[1, 1]].concat();
        let say = |feedback: Feedback| [&begun[..], &feedback.encode()].concat();
        assert!(closes(&say(Feedback::Resend(u32::MAX))).contains("4294967295 of 3"));
        assert!(closes(&say(Feedback::Restart(0))).contains("block 0"));
        assert!(closes(&[&begun[..], &[9; 12]].concat()).contains("unknown"));
    }

    #[test]
    fn a_client_without_the_secret_asks_for_nothing() {
        let mut session = begin();
        let wrong = [&REVISION.to_be_bytes()[..], &[0; 16], b"!#DIR??\na_b/c.vdif\n"].concat();
        let actions = session.step(&wrong);
        assert_eq!(actions[1], Action::Send(vec![1]));
        assert!(matches!(actions[2], Action::Close(_)) && actions.len() == 3, "{actions:?}");
        assert!(!session.is_known());
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_no_panic(known: bool, said: Vec<u8>) {
            let mut session = begin();
            if known {
                give(&mut session, &greeting());
                give(&mut session, b"a_b/c.vdif\n");
            }
            for part in said.chunks(7) {
                give(&mut session, part);
            }
        }
    }
}
