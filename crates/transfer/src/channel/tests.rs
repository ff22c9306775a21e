//! Tests of connections over loopback, with real TLS.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use fullbore_core::hint::Hint;

use super::*;

struct Ends {
    _directory: tempfile::TempDir,
    client: Identity,
    server: Identity,
}

fn ends() -> Ends {
    let directory = tempfile::tempdir().unwrap();
    let load = |name| Identity::load_or_create(&directory.path().join(name)).unwrap();
    let (client, server) = (load("client"), load("server"));
    Ends { _directory: directory, client, server }
}

fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

fn accept(listener: &TcpListener, ends: &Ends) -> Result<Channel, ChannelError> {
    let stream = listener.accept().unwrap().0;
    Channel::accept_within(stream, &ends.server, &LinkSettings::default(), SOON)
}

const LIMIT: Duration = Duration::from_millis(500);
const SOON: Duration = Duration::from_secs(10);

/// Connects both ends, through `via` if it is given.
fn connect_via(ends: &Ends, via: impl FnOnce(String) -> String) -> (Channel, Channel) {
    let (listener, address) = listen();
    let key = ends.server.fingerprint();
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let stream = listener.accept().unwrap().0;
            Channel::accept(stream, &ends.server, &LinkSettings::default()).unwrap()
        });
        let settings = LinkSettings::default();
        let client = Channel::connect(&via(address), &ends.client, key, &settings).unwrap();
        (client, server.join().unwrap())
    })
}

fn connect(ends: &Ends) -> (Channel, Channel) {
    connect_via(ends, |address| address)
}

/// Two ends that have agreed on a version.
pub(crate) fn channels() -> (Channel, Channel) {
    agree(connect(&ends()))
}

fn hello() -> Message {
    let role = crate::protocol::Role::Control;
    Message::Hello { versions: (1, 1), role, secret: None, name: "station".into() }
}

/// Both ends have agreed on a version.
fn agree((mut client, mut server): (Channel, Channel)) -> (Channel, Channel) {
    client.send(&hello()).unwrap();
    assert_eq!(server.receive(SOON).unwrap(), Some(hello()));
    let welcome = Message::Welcome { version: 1, name: "centre".into() };
    server.send(&welcome).unwrap();
    assert_eq!(client.receive(SOON).unwrap(), Some(welcome));
    (client, server)
}

fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn both_ends_know_each_other_by_key() {
    let ends = ends();
    let (client, server) = agree(connect(&ends));
    assert_eq!(client.peer(), ends.server.fingerprint());
    assert_eq!(server.peer(), ends.client.fingerprint());
    let status = client.link().unwrap();
    assert!(!status.congestion.is_empty() && status.round_trip > Duration::ZERO, "{status:?}");
    assert_eq!(status.notice, None);
}

#[test]
fn wrong_key_is_refused_and_named() {
    let ends = ends();
    let (listener, address) = listen();
    let known = Fingerprint([7; 32]);
    thread::scope(|scope| {
        let server = scope.spawn(|| accept(&listener, &ends));
        let settings = LinkSettings::default();
        let error = Channel::connect(&address, &ends.client, known, &settings).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, ChannelError::WrongKey { .. }), "{text}");
        assert!(text.contains(&ends.server.fingerprint().to_string()) && !error.may_pass());
        assert!(server.join().unwrap().is_err(), "the server gets no channel either");
    });
}

/// Connects with other settings of TLS than ours; returns the server's error.
fn refused(ends: &Ends, change: impl FnOnce(&mut rustls::ClientConfig)) -> ChannelError {
    let (listener, address) = listen();
    let (mut config, _) = tls::client(&ends.client, ends.server.fingerprint()).unwrap();
    change(&mut config);
    thread::scope(|scope| {
        let server = scope.spawn(|| accept(&listener, ends));
        let mut stream = TcpStream::connect(&address).unwrap();
        let name = ServerName::try_from("a.example").unwrap();
        let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
        while tls.is_handshaking() && tls.complete_io(&mut stream).is_ok() {}
        // The handshake of a client is over before the server has checked it.
        let _ = tls.complete_io(&mut stream);
        server.join().unwrap().unwrap_err()
    })
}

#[derive(Debug)]
struct NoCertificate;

impl rustls::client::ResolvesClientCert for NoCertificate {
    fn resolve(
        &self,
        _hints: &[&[u8]],
        _schemes: &[rustls::SignatureScheme],
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

#[test]
fn client_without_a_key_is_refused() {
    let ends = ends();
    let error = refused(&ends, |config| {
        config.client_auth_cert_resolver = Arc::new(NoCertificate);
    });
    assert!(matches!(error, ChannelError::NoKey { .. }), "{error}");
}

#[test]
fn client_of_another_protocol_is_refused() {
    let ends = ends();
    for protocols in [vec![], vec![b"h2".to_vec()], vec![b"fullbore/2".to_vec()]] {
        let error = refused(&ends, |config| config.alpn_protocols = protocols);
        assert!(matches!(error, ChannelError::NotFullbore { .. }), "{error}");
    }
}

/// A ClientHello of TLS 1.2, as OpenSSL sends it.
fn hello_of_tls_1_2() -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([5; 32]);
    body.push(0);
    // ECDHE with AES-128-GCM for ECDSA and RSA.
    body.extend([0, 4, 0xC0, 0x2B, 0xC0, 0x2F]);
    body.extend([1, 0]);
    let extensions = [
        [0, 10, 0, 4, 0, 2, 0, 29].as_slice(),
        &[0, 13, 0, 6, 0, 4, 4, 3, 8, 4],
        &[0, 11, 0, 2, 1, 0],
        &[0, 16, 0, 13, 0, 11, 10],
        b"fullbore/1",
    ]
    .concat();
    body.extend((extensions.len() as u16).to_be_bytes());
    body.extend(extensions);
    let mut record = vec![22, 3, 1];
    record.extend((body.len() as u16 + 4).to_be_bytes());
    record.extend([1, 0]);
    record.extend((body.len() as u16).to_be_bytes());
    record.extend(body);
    record
}

/// Sends bytes to a server; returns its error and the time it took.
fn answer_to(ends: &Ends, bytes: &[u8]) -> (ChannelError, Duration) {
    let (listener, address) = listen();
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let begun = Instant::now();
            (accept(&listener, ends).unwrap_err(), begun.elapsed())
        });
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(bytes).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < 100, "a stranger gets no more than an alert");
        server.join().unwrap()
    })
}

#[test]
fn tls_1_2_and_garbage_are_refused() {
    let ends = ends();
    let garbage = [
        hello_of_tls_1_2(),
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
        vec![0; 1000],
        vec![255; 1000],
    ];
    for bytes in garbage {
        let (error, took) = answer_to(&ends, &bytes);
        assert!(matches!(error, ChannelError::NotFullbore { .. }), "{error:?}");
        assert!(took < SOON, "{took:?}");
    }
    for seed in 1..50 {
        let (error, took) = answer_to(&ends, &noise(2000, seed));
        assert!(took < SOON, "{error}: {took:?}");
    }
}

#[test]
fn server_of_another_protocol_is_recognised() {
    let ends = ends();
    let (listener, address) = listen();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = listener.accept().unwrap().0;
            stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let (key, settings) = (ends.server.fingerprint(), LinkSettings::default());
        let error = Channel::connect(&address, &ends.client, key, &settings).unwrap_err();
        assert!(matches!(error, ChannelError::NotFullbore { .. }), "{error}");
    });
}

#[test]
fn port_without_a_listener_is_refused() {
    let ends = ends();
    let (listener, address) = listen();
    drop(listener);
    let (key, settings) = (ends.server.fingerprint(), LinkSettings::default());
    let error = Channel::connect(&address, &ends.client, key, &settings).unwrap_err();
    assert!(matches!(error, ChannelError::Refused { .. }), "{error}");
    assert!(error.hint().unwrap().contains("fullbore receive"));
}

#[test]
fn slow_client_ends_within_the_limit() {
    let ends = ends();
    let (listener, address) = listen();
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let (stream, begun) = (listener.accept().unwrap().0, Instant::now());
            let settings = LinkSettings::default();
            let accepted = Channel::accept_within(stream, &ends.server, &settings, LIMIT);
            (accepted.unwrap_err(), begun.elapsed())
        });
        // The beginning of a record, then a byte of it from time to time.
        let mut stream = TcpStream::connect(&address).unwrap();
        let mut sent = stream.write_all(&[22, 3, 1, 64, 0, 1, 0, 63, 252]);
        while sent.is_ok() && !server.is_finished() {
            thread::sleep(Duration::from_millis(20));
            sent = stream.write_all(&[3]);
        }
        let (error, took) = server.join().unwrap();
        assert!(matches!(error, ChannelError::NoAnswer { .. }), "{error}");
        assert!((LIMIT..SOON).contains(&took), "{took:?}");
    });
}

#[test]
fn message_that_does_not_arrive_is_waited_for_no_longer_than_asked() {
    let ends = ends();
    let (mut client, server) = agree(connect(&ends));
    let begun = Instant::now();
    assert_eq!(client.receive(Duration::from_millis(100)).unwrap(), None);
    assert!((100..5000).contains(&begun.elapsed().as_millis()));
    assert_eq!(client.receive(Duration::ZERO).unwrap(), None);
    drop(server);
    assert!(matches!(client.receive(SOON), Err(ChannelError::Closed { .. })));
}

#[test]
fn data_of_a_hundred_megabytes_arrives_unchanged() {
    let ends = ends();
    let (mut client, mut server) = agree(connect(&ends));
    let block = noise(4 << 20, 1);
    let bytes = block.len() as u32;
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..25 {
                client.send(&Message::Ping { number }).unwrap();
                client.send_data(&Message::Probe { bytes }, &block).unwrap();
            }
        });
        let mut arrived = vec![0; block.len()];
        for number in 0..25 {
            assert_eq!(server.receive(SOON).unwrap(), Some(Message::Ping { number }));
            assert_eq!(server.receive(SOON).unwrap(), Some(Message::Probe { bytes }));
            arrived.fill(0);
            // In two parts: the caller's memory need not be of one piece.
            let (first, second) = arrived.split_at_mut(1000 + number as usize);
            server.receive_data(first).unwrap();
            server.receive_data(second).unwrap();
            assert!(arrived == block, "block {number}");
        }
    });
}

/// A proxy that passes on `piece` bytes at a time.
fn proxy(address: String, piece: usize) -> String {
    let (listener, own) = listen();
    thread::spawn(move || {
        let here = listener.accept().unwrap().0;
        let there = TcpStream::connect(address).unwrap();
        let pass = move |mut from: TcpStream, mut to: TcpStream| {
            to.set_nodelay(true).unwrap();
            let mut bytes = vec![0; piece];
            while let Ok(length @ 1..) = from.read(&mut bytes) {
                if to.write_all(&bytes[..length]).is_err() {
                    return;
                }
            }
            let _ = to.shutdown(Shutdown::Write);
        };
        let (from, to) = (here.try_clone().unwrap(), there.try_clone().unwrap());
        thread::spawn(move || pass(from, to));
        pass(there, here);
    });
    own
}

#[test]
fn messages_arrive_however_the_bytes_are_split() {
    let ends = ends();
    for piece in [1, 2, 3, 5, 7, 16, 61, 1000] {
        let (mut client, mut server) = agree(connect_via(&ends, |to| proxy(to, piece)));
        let block = noise(20 * piece.max(50), piece as u64);
        let bytes = block.len() as u32;
        client.send(&Message::Ping { number: 1 }).unwrap();
        client.send_data(&Message::Probe { bytes }, &block).unwrap();
        client.send(&Message::Bye).unwrap();
        assert_eq!(server.receive(SOON).unwrap(), Some(Message::Ping { number: 1 }));
        assert_eq!(server.receive(SOON).unwrap(), Some(Message::Probe { bytes }));
        let mut arrived = vec![0; block.len()];
        server.receive_data(&mut arrived).unwrap();
        assert!(arrived == block);
        assert_eq!(server.receive(SOON).unwrap(), Some(Message::Bye));
    }
}

#[test]
fn two_ends_that_send_at_once_do_not_wait_for_each_other() {
    let ends = ends();
    let (client, server) = agree(connect(&ends));
    // More than what the buffers of both sockets hold.
    let update = Message::Update { manifest: noise(3 << 20, 5) };
    thread::scope(|scope| {
        let talk = |mut channel: Channel| {
            for _ in 0..4 {
                channel.send(&update).unwrap();
                assert_eq!(channel.receive(SOON).unwrap().as_ref(), Some(&update));
            }
            channel.finish(SOON);
        };
        scope.spawn(move || talk(client));
        talk(server);
    });
}

#[test]
fn end_that_stalls_is_given_up() {
    let ends = ends();
    let (mut client, mut server) = agree(connect(&ends));
    client.pipe.set_stall(LIMIT);
    server.pipe.set_stall(LIMIT);
    let bytes = 32 << 20;
    let error = client.send_data(&Message::Probe { bytes }, &vec![0; bytes as usize]).unwrap_err();
    assert!(error.to_string().contains("takes nothing"), "{error}");
    assert_eq!(server.receive(SOON).unwrap(), Some(Message::Probe { bytes }));
    let error = server.receive_data(&mut vec![0; bytes as usize]).unwrap_err();
    assert!(error.to_string().contains("sends nothing"), "{error}");
}

#[test]
fn closer_ends_a_call_that_waits() {
    let ends = ends();
    let (mut client, _server) = agree(connect(&ends));
    let closer = client.closer();
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(Duration::from_millis(100));
            closer.close();
        });
        let error = client.receive(SOON).unwrap_err();
        assert!(matches!(error, ChannelError::Lost { .. }), "{error}");
    });
}

#[test]
fn last_words_arrive_before_the_end() {
    let ends = ends();
    let (client, mut server) = agree(connect(&ends));
    let last = Message::Refuse { refusal: crate::protocol::Refusal::Busy, text: "later".into() };
    let client = thread::spawn(move || {
        let mut client = client;
        // The other end is not listening while it sends, and finds the refusal afterwards.
        client.send(&last).unwrap();
        client.finish(SOON);
    });
    let bytes = 1 << 20;
    server.send_data(&Message::Probe { bytes }, &vec![0; bytes as usize]).unwrap();
    assert!(matches!(server.receive(SOON).unwrap(), Some(Message::Refuse { .. })));
    assert!(matches!(server.receive(SOON), Err(ChannelError::Closed { .. })));
    drop(server);
    client.join().unwrap();
}

#[test]
fn rate_can_be_limited_while_data_flows() {
    let ends = ends();
    let (mut client, mut server) = agree(connect(&ends));
    client.set_rate(Some(4_000_000));
    let bytes = 2 << 20;
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            client.send_data(&Message::Probe { bytes }, &vec![1; bytes as usize]).unwrap();
            client.set_rate(None);
        });
        server.receive(SOON).unwrap();
        server.receive_data(&mut vec![0; bytes as usize]).unwrap();
    });
    assert!(begun.elapsed() > Duration::from_millis(250), "{:?}", begun.elapsed());
}

#[test]
fn congestion_control_that_cannot_be_had_is_told() {
    let ends = ends();
    let (listener, address) = listen();
    thread::scope(|scope| {
        let server = scope.spawn(|| accept(&listener, &ends));
        let congestion = Some("nonesuch".to_owned());
        let settings = LinkSettings { congestion, rate: None };
        let key = ends.server.fingerprint();
        let client = Channel::connect(&address, &ends.client, key, &settings).unwrap();
        let notice = client.link().unwrap().notice.unwrap();
        assert!(notice.starts_with("congestion control nonesuch is not used"), "{notice}");
        server.join().unwrap().unwrap();
    });
}

#[test]
fn a_connection_on_a_lossy_path_takes_bbr_unless_the_user_chose() {
    let ends = ends();
    let (listener, address) = listen();
    for chosen in [None, Some("reno".to_owned())] {
        thread::scope(|scope| {
            let server = scope.spawn(|| accept(&listener, &ends));
            let settings = LinkSettings { congestion: chosen.clone(), rate: None };
            let key = ends.server.fingerprint();
            let mut client = Channel::connect(&address, &ends.client, key, &settings).unwrap();
            let path = Path::default();
            client.join(&path);
            assert_eq!(client.link().unwrap().notice, None);
            path.set_lossy();
            client.join(&path);
            let link = client.link().unwrap();
            let wanted = chosen.as_deref().unwrap_or("bbr");
            // Not every kernel has BBR: then the connection says so.
            assert!(
                link.congestion == wanted || chosen.is_none() && link.notice.is_some(),
                "{link:?}"
            );
            server.join().unwrap().unwrap();
        });
    }
}
