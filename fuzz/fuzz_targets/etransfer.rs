//! Any bytes of an etransfer client, on a control and on a data connection: the server does the same whatever pieces they
//! come in, and has at most one file open. The first byte chooses the pieces.
#![no_main]

use fullbore_etransfer::codec::{DataAddress, Header, LONGEST_HEADER, LONGEST_LINE};
use fullbore_etransfer::session::{Action, Session};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));

const ID: &str = "abcdefghij0123456789";

fn check(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    if let Ok(Some((header, length))) = Header::parse(rest) {
        assert!(length <= LONGEST_HEADER);
        let again = header.to_string();
        assert!(header.id.contains(['{', '}', ',']) || Header::parse(again.as_bytes()).is_ok());
        assert!((1..length).all(|cut| Header::parse(&rest[..cut]) == Ok(None)));
    }
    let text = String::from_utf8_lossy(rest);
    for address in DataAddress::parse_all(&text) {
        assert_eq!(DataAddress::parse(&address.to_string()), Some(address));
    }
    let size = usize::from(first) + 1;
    assert_eq!(served(rest.chunks(size)), served([rest]), "pieces of {size}");
}

/// All actions of a server that can open every file.
fn served<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Action> {
    let (mut session, mut all, mut open) = (Session::default(), Vec::new(), 0);
    for piece in pieces {
        session.feed(piece);
        while let Some(action) = session.next_action() {
            match &action {
                Action::Open(_, path) => {
                    assert!(path.len() <= 3 * LONGEST_LINE);
                    session.opened(Ok((ID.to_owned(), 7)));
                    open += 1;
                }
                Action::Close(_) => open -= 1,
                Action::Send { .. } | Action::Cancel => assert_eq!(open, 1),
                _ => {}
            }
            assert!((0..=1).contains(&open));
            all.push(action);
        }
    }
    let closed = all.iter().position(|action| matches!(action, Action::Hangup(_)));
    assert!(closed.is_none_or(|at| at + 1 == all.len()), "nothing follows the end");
    all
}
