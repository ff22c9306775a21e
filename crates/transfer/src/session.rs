//! What both ends of a transfer have in common: greetings, keeping alive, and the time limits.

use std::time::{Duration, Instant};

use crate::channel::{Channel, LinkStatus};
use crate::error::TransferError;
use crate::protocol::{Message, Refusal, Role, VERSIONS};

/// The wait for a message, between looks at everything else.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// Time between two pings.
pub(crate) const PING_INTERVAL: Duration = Duration::from_secs(4);

/// A peer that is silent for this long is gone.
pub(crate) const SILENCE: Duration = Duration::from_secs(20);

/// Time for the greeting.
pub(crate) const GREETING: Duration = Duration::from_secs(10);

/// Time for the answer to an offer: the receiver may have to check what it has.
pub(crate) const ACCEPT_PATIENCE: Duration = Duration::from_secs(300);

/// Time for sealing: many files are synced and renamed.
pub(crate) const SEAL_PATIENCE: Duration = Duration::from_secs(300);

/// The name of this host, as told to peers.
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.chars().filter(|it| it.is_ascii_graphic()).take(63).collect()
}

/// Returns a token that nobody can guess.
pub fn random_token() -> [u8; 16] {
    let mut token = [0; 16];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut token).expect("the kernel gives random bytes");
    token
}

/// The first messages of the connecting end. Returns the name of the other end.
pub fn greet(
    channel: &mut Channel,
    role: Role,
    secret: Option<[u8; 16]>,
    peer: &str,
) -> Result<String, TransferError> {
    channel.send(&Message::Hello { versions: VERSIONS, role, secret, name: host_name() })?;
    match channel.receive(GREETING)? {
        Some(Message::Welcome { name, .. }) => Ok(name),
        Some(Message::Refuse { refusal, text }) => {
            Err(TransferError::Refused { peer: peer.to_owned(), refusal, text })
        }
        Some(other) => Err(unexpected(peer, &other)),
        None => Err(silent(peer, GREETING)),
    }
}

/// The error for a peer that has not answered for this long.
pub(crate) fn silent(peer: &str, time: Duration) -> TransferError {
    TransferError::Silent { peer: peer.to_owned(), seconds: time.as_secs() }
}

/// Refuses, and says why.
pub fn refuse(channel: &mut Channel, refusal: Refusal, text: impl Into<String>) {
    // The peer may be gone; the refusal is a courtesy.
    let _ = channel.send(&Message::Refuse { refusal, text: text.into() });
}

/// The error for a message at the wrong time.
pub(crate) fn unexpected(peer: &str, message: &Message) -> TransferError {
    let why = format!("the message `{}` at the wrong time", message.name());
    TransferError::Protocol { peer: peer.to_owned(), why }
}

/// A control connection, with pings and their answers.
#[derive(Debug)]
pub(crate) struct Conversation<'a> {
    channel: &'a mut Channel,
    peer: String,
    heard: Instant,
    pinged: Instant,
}

impl<'a> Conversation<'a> {
    pub(crate) fn new(channel: &'a mut Channel, peer: &str) -> Self {
        let now = Instant::now();
        Self { channel, peer: peer.to_owned(), heard: now, pinged: now }
    }

    /// The name of the other end.
    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    /// The state of the connection.
    pub(crate) fn link(&self) -> Option<LinkStatus> {
        self.channel.link()
    }

    /// The key of the other end, as hexadecimal digits.
    pub(crate) fn key(&self) -> String {
        self.channel.peer().hex()
    }

    pub(crate) fn send(&mut self, message: &Message) -> Result<(), TransferError> {
        Ok(self.channel.send(message)?)
    }

    /// Returns the next message; `None` if none arrives within this time, or if one about the connection itself came:
    /// however many of them a peer sends, the caller goes on with its work. Refusals are errors.
    pub(crate) fn receive(&mut self, within: Duration) -> Result<Option<Message>, TransferError> {
        let Some(message) = self.channel.receive(within)? else { return Ok(None) };
        self.heard = Instant::now();
        match message {
            Message::Ping { number } => {
                self.send(&Message::Pong { number })?;
                Ok(None)
            }
            Message::Pong { .. } => Ok(None),
            Message::Refuse { refusal, text } => {
                Err(TransferError::Refused { peer: self.peer.clone(), refusal, text })
            }
            Message::Bye => Err(TransferError::Ended { peer: self.peer.clone() }),
            message => Ok(Some(message)),
        }
    }

    /// Sends a ping if it is time, and fails if the peer has been silent for too long.
    pub(crate) fn keep_alive(
        &mut self,
        every: Duration,
        patience: Option<Duration>,
    ) -> Result<(), TransferError> {
        if self.heard.elapsed() > patience.unwrap_or(SILENCE) {
            return Err(self.silent());
        }
        if self.pinged.elapsed() >= every {
            self.pinged = Instant::now();
            self.send(&Message::Ping { number: 0 })?;
        }
        Ok(())
    }

    pub(crate) fn silent(&self) -> TransferError {
        silent(&self.peer, self.heard.elapsed())
    }

    pub(crate) fn broken(&self, why: String) -> TransferError {
        TransferError::Protocol { peer: self.peer.clone(), why }
    }

    pub(crate) fn unexpected(&self, message: &Message) -> TransferError {
        unexpected(&self.peer, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::tests::channels;

    #[test]
    fn a_flood_of_pings_neither_fills_the_stack_nor_keeps_an_end_from_its_work() {
        let (mut near, mut far) = channels();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // It never takes the answers, so it ends when they fill the connection, or this end is gone.
                while near.send(&Message::Ping { number: 1 }).is_ok() {}
            });
            let mut talk = Conversation::new(&mut far, "peer");
            for _ in 0..50_000 {
                assert_eq!(talk.receive(Duration::from_secs(10)).unwrap(), None);
            }
            // A connection that is only shut down, with unread bytes, would hold the other end for a minute.
            drop(far);
        });
    }

    #[test]
    fn a_message_at_the_wrong_time_is_named_as_in_the_reference() {
        let told = unexpected("far", &Message::Durable { stream: 1, blocks: Default::default() });
        assert!(told.to_string().contains("`durable`"), "{told}");
    }
}
