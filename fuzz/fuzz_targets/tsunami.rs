//! Any bytes of a Tsunami client that knows the secret: the server does the same whatever pieces they come in, opens no
//! name that is too long, and begins no transfer with impossible parameters. The first byte chooses the pieces.
#![no_main]

use fullbore_transfer::files::Listed;
use fullbore_tsunami::codec::{self, CHALLENGE_BYTES, LONGEST_NAME, REVISION};
use fullbore_tsunami::session::{Action, Session};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));

const SECRET: &[u8] = b"kitten";

fn check(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    if let Some((number, kind)) = codec::decode_head(rest) {
        let head = codec::encode_head(number, kind);
        assert_eq!(codec::decode_head(&head), Some((number, kind)));
    }
    let challenge = [7; CHALLENGE_BYTES];
    let mut stream = REVISION.to_be_bytes().to_vec();
    stream.extend_from_slice(&codec::proof(&challenge, SECRET));
    stream.extend_from_slice(rest);
    let once = served(challenge, [&stream[..]]);
    let size = usize::from(first) + 1;
    assert_eq!(served(challenge, stream.chunks(size)), once, "pieces of {size}");
}

/// All actions of a server that gets these pieces, and has one file.
fn served<'a>(
    challenge: [u8; CHALLENGE_BYTES],
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<Action> {
    let (mut session, _) = Session::begin(challenge, SECRET, 1);
    let files = [Listed { name: "a_b/c.vdif".to_owned(), bytes: 2500 }];
    let mut all = Vec::new();
    for piece in pieces {
        let mut todo = session.step(piece);
        while !todo.is_empty() {
            let mut next = Vec::new();
            for action in &todo {
                match action {
                    Action::List => next.extend(session.listed(&files)),
                    Action::Open(name) => {
                        assert!(name.len() <= LONGEST_NAME);
                        let known = files.iter().find(|file| file.name == *name);
                        next.extend(session.opened(known.map(|file| file.bytes)));
                    }
                    Action::Begin { parameters, .. } => assert_eq!(parameters.fault(), None),
                    Action::Send(_) | Action::Feedback(_) | Action::Close(_) => {}
                }
            }
            all.append(&mut todo);
            todo = next;
        }
    }
    let closed = all.iter().position(|action| matches!(action, Action::Close(_)));
    assert!(closed.is_none_or(|at| at + 1 == all.len()), "nothing follows the end");
    all
}
