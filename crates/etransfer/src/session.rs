//! The server's end of a control connection, as a pure machine: lines in, actions out, their outcomes back in.
//!
//! A connection has at most one open file. Only the connection that opened it may close it, cancel it or have it sent.

use super::codec::{CodecError, DataAddress, LONGEST_LINE, Lines, Mode, Request};

/// The longest reason that a client gets.
const LONGEST_REASON: usize = 400;

/// What the server has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send these lines.
    Reply(String),
    /// List the files that match, and send [`listed`].
    List(String),
    /// Send [`data_addresses`].
    DataAddresses,
    /// Open the file, and call [`Session::opened`].
    Open(Access, String),
    /// Push this many bytes of the open file to the file with this id. The answer follows when it is done:
    /// [`Session::sent`], [`sent_line`].
    Send {
        /// The id there.
        to: String,
        /// The bytes.
        bytes: u64,
        /// Where to connect to.
        addresses: Vec<DataAddress>,
    },
    /// Interrupt the transfer of the open file.
    Cancel,
    /// Close the open file, and send the reply.
    Close(String),
    /// Close the connection, because of this.
    Hangup(String),
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To be read from this offset on.
    Read(u64),
    /// To be written.
    Write(Mode),
}

/// A control connection.
#[derive(Debug)]
pub struct Session {
    lines: Lines,
    /// The id of the open file, and how it was opened.
    open: Option<(String, Access)>,
    /// How the file that the server is opening is opened.
    opening: Option<Access>,
    sending: bool,
    over: bool,
}

impl Default for Session {
    fn default() -> Self {
        let lines = Lines::new(LONGEST_LINE);
        Self { lines, open: None, opening: None, sending: false, over: false }
    }
}

impl Session {
    /// Takes bytes of the client.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// The next thing to do; `None` until more bytes arrive, or after the end.
    pub fn next_action(&mut self) -> Option<Action> {
        if self.over {
            return None;
        }
        let action = match self.lines.next_line() {
            Ok(None) => return None,
            Ok(Some(line)) => match Request::parse(&line) {
                Some(request) => self.answer(request),
                None => Action::Hangup("an unknown request".to_owned()),
            },
            Err(error @ (CodecError::LongLine(_) | CodecError::Header)) => {
                Action::Hangup(error.to_string())
            }
        };
        self.over = matches!(action, Action::Hangup(_));
        Some(action)
    }

    fn answer(&mut self, request: Request) -> Action {
        match request {
            Request::Version => Action::Reply("OK 1\n".to_owned()),
            Request::List(pattern) => Action::List(pattern),
            Request::DataAddresses => Action::DataAddresses,
            Request::Write(..) | Request::Read(..) if self.open.is_some() => {
                Action::Reply(refusal("this connection has an open file: remove its uuid first"))
            }
            Request::Write(mode, path) => self.open(Access::Write(mode), path),
            Request::Read(have, path) => self.open(Access::Read(have), path),
            Request::Send { from, to, bytes, addresses } => match &self.open {
                Some((id, Access::Read(_))) if *id == from && !self.sending => {
                    self.sending = true;
                    Action::Send { to, bytes, addresses }
                }
                _ => Action::Reply("ERR,0,0 no file is open for reading with this uuid\n".into()),
            },
            Request::Cancel(id) if self.is_open(&id) => Action::Cancel,
            Request::Cancel(_) => Action::Reply(String::new()),
            Request::Remove(id) if self.is_open(&id) => {
                (self.open, self.sending) = (None, false);
                Action::Close("OK\n".to_owned())
            }
            Request::Remove(_) => Action::Reply(refusal("no file is open here with this uuid")),
        }
    }

    fn open(&mut self, access: Access, path: String) -> Action {
        self.opening = Some(access);
        Action::Open(access, path)
    }

    fn is_open(&self, id: &str) -> bool {
        self.open.as_ref().is_some_and(|(open, _)| open == id)
    }

    /// Takes the outcome of [`Action::Open`]: the id and the bytes that remain or are there, or why not. Returns the reply.
    pub fn opened(&mut self, outcome: Result<(String, u64), String>) -> String {
        let Some(access) = self.opening.take() else { return String::new() };
        match outcome {
            Ok((id, bytes)) => {
                let what = match access {
                    Access::Read(_) => "Remain",
                    Access::Write(_) => "AlreadyHave",
                };
                let reply = format!("{what}:{bytes}\nUUID:{id}\nOK\n");
                self.open = Some((id, access));
                reply
            }
            Err(why) => refusal(&why),
        }
    }

    /// Takes the end of [`Action::Send`].
    pub fn sent(&mut self) {
        self.sending = false;
    }
}

/// The answer to `send-file`.
pub fn sent_line(bytes: u64, seconds: f64, fault: Option<&str>) -> String {
    match fault {
        None => format!("OK,{bytes},{seconds:.6}\n"),
        Some(why) => format!("ERR,{bytes},{seconds:.6} {}\n", harmless(why)),
    }
}

/// The answer to `list`.
pub fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("OK {name}\n")).collect::<String>() + "OK\n"
}

/// The answer to `data-channel-addr`.
pub fn data_addresses(address: &DataAddress) -> String {
    format!("OK {address}\nOK\n")
}

/// A request that is refused.
pub fn refusal(why: &str) -> String {
    format!("ERR {}\n", harmless(why))
}

/// A reason on one line.
fn harmless(why: &str) -> String {
    why.chars().take(LONGEST_REASON).map(|it| if it.is_control() { ' ' } else { it }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "abcdefghij0123456789";

    /// All that a server does and says that can open every file.
    fn served<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Action>, String) {
        let (mut session, mut all, mut said) = (Session::default(), Vec::new(), String::new());
        for piece in pieces {
            session.feed(piece);
            while let Some(action) = session.next_action() {
                match &action {
                    Action::Reply(text) | Action::Close(text) => said += text,
                    Action::Open(..) => said += &session.opened(Ok((ID.to_owned(), 7))),
                    _ => {}
                }
                all.push(action);
            }
        }
        (all, said)
    }

    #[test]
    fn a_conversation_is_that_of_the_table() {
        let text = format!(
            "protocol-version\nwrite-file-Resume /x\nread-file 0 y\nremove-uuid other\nremove-uuid {ID}\n\
             read-file 3 y\ncancel other\nsend-file other b 1 <tcp/h:1>\nsend-file {ID} b 1 <tcp/h:1>\nsend-file {ID} b 1 <tcp/h:1>\ncancel {ID}\n"
        );
        let (actions, said) = served([text.as_bytes()]);
        let opened = |what| format!("{what}:7\nUUID:{ID}\nOK\n");
        let busy = "ERR this connection has an open file: remove its uuid first\n";
        let none = "ERR no file is open here with this uuid\n";
        let unsent = "ERR,0,0 no file is open for reading with this uuid\n";
        let (written, read) = (opened("AlreadyHave"), opened("Remain"));
        assert_eq!(said, format!("OK 1\n{written}{busy}{none}OK\n{read}{unsent}{unsent}"));
        let sends = actions.iter().filter(|it| matches!(it, Action::Send { .. })).count();
        assert_eq!((sends, actions.last()), (1, Some(&Action::Cancel)));
        for cut in 0..text.len() {
            let (a, b) = text.as_bytes().split_at(cut);
            assert_eq!(served([a, b]), (actions.clone(), said.clone()), "split at {cut}");
        }
    }

    #[test]
    fn nothing_follows_an_unknown_or_an_endless_line() {
        let endless = [b"x".repeat(LONGEST_LINE + 1), b"\nlist *\n".to_vec()].concat();
        for text in [&b"help\nlist *\n"[..], &endless, b"\xff\xfe\n", b"{ uuid:a, sz:1}\n"] {
            let (actions, said) = served([text]);
            assert!(matches!(actions[..], [Action::Hangup(_)]), "{actions:?}");
            assert_eq!(said, "");
        }
        assert_eq!(refusal("a\r\nOK"), "ERR a  OK\n");
    }

    proptest! {
        #[test]
        fn requests_in_any_order_keep_one_file_open(words in prop::collection::vec(0_usize..8, 0..40), size in 1_usize..60) {
            let known = [
                "list *".to_owned(), "read-file 0 a".to_owned(), "write-file-New a".to_owned(), format!("remove-uuid {ID}"),
                format!("cancel {ID}"), format!("send-file {ID} b 1 <tcp/h:1>"), "data-channel-addr".to_owned(), "bad".to_owned(),
            ];
            let text: String = words.iter().map(|word| known[*word].clone() + "\n").collect();
            let (actions, said) = served(text.as_bytes().chunks(size));
            prop_assert_eq!((&actions, &said), (&served([text.as_bytes()]).0, &served([text.as_bytes()]).1));
            let mut open = 0_i32;
            for action in &actions {
                open += i32::from(matches!(action, Action::Open(..)));
                open -= i32::from(matches!(action, Action::Close(_)));
                prop_assert!((0..=1).contains(&open));
                let needs_file = matches!(action, Action::Send { .. } | Action::Cancel);
                prop_assert!(open == 1 || !needs_file);
            }
        }
    }
}
