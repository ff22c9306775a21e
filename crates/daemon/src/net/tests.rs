//! Real sockets, on loopback.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use axum::routing::get;

use super::*;

const PATIENCE: Patience =
    Patience { head: Duration::from_millis(400), body: Duration::from_millis(400) };

fn serving(limits: Limits) -> (tokio::runtime::Runtime, SocketAddr, Entrance) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().unwrap();
    let router = Router::new().route("/", get(async || "here"));
    let entrance = Entrance::new(limits, PATIENCE, router);
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(entrance.clone().accept(Listener::Tcp(listener, None)));
    (runtime, address, entrance)
}

fn ask(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_thousand_silent_connections_stop_nobody_and_are_closed() {
    let (_runtime, address, entrance) = serving(Limits { total: 40, each: 20 });
    let mut silent: Vec<TcpStream> =
        (0..1000).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert!(ask(address).ends_with("here"));
    let open = || entrance.connections.lock().unwrap().len();
    assert!(open() <= 20, "{}", open());
    // Those that were not pushed out are closed after the header timeout. A reset counts as well.
    let last = silent.last_mut().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert!(matches!(last.read(&mut [0]), Ok(0) | Err(_)));
    let end = Instant::now() + Duration::from_secs(20);
    while open() > 0 {
        assert!(Instant::now() < end, "{} are open", open());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_head_that_never_ends_is_cut_off_by_time_and_by_size() {
    let (_runtime, address, _entrance) = serving(Limits { total: 4, each: 4 });
    let begun = Instant::now();
    let mut slow = TcpStream::connect(address).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").unwrap();
    let mut text = Vec::new();
    // The answer, if there is one, is 408. Then the connection is closed.
    let _ = slow.read_to_end(&mut text);
    assert!(begun.elapsed() >= PATIENCE.head && begun.elapsed() < Duration::from_secs(15));
    assert!(!String::from_utf8_lossy(&text).contains("here"));
    let mut large = TcpStream::connect(address).unwrap();
    large.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let line = [b"X: ".as_slice(), &vec![b'x'; 2 * LARGEST_HEAD], b"\r\n"].concat();
    let _ = large.write_all(&[b"GET / HTTP/1.1\r\n".as_slice(), &line].concat());
    let mut text = Vec::new();
    let _ = large.read_to_end(&mut text);
    assert!(!String::from_utf8_lossy(&text).contains("here"));
}

#[test]
fn a_unix_socket_is_replaced_only_if_nobody_listens() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("s");
    let first = bind_unix(&path, 0o600).unwrap();
    assert_eq!(bind_unix(&path, 0o600).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    drop(first.0);
    std::mem::forget(first.1);
    let second = bind_unix(&path, 0o600).unwrap();
    drop(second);
    assert!(!path.exists());
    std::fs::write(&path, "data").unwrap();
    assert!(bind_unix(&path, 0o600).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
}
