//! Against a server of a few lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::thread::{self, JoinHandle};

use fullbore_core::hint::Hint;
use serde_json::json;

use super::*;

/// Answers one request, and returns its head and body.
fn serve(stream: impl Read + Write + Send + 'static, answer: &'static str) -> JoinHandle<String> {
    thread::spawn(move || {
        let (mut reader, mut head) = (BufReader::new(stream), String::new());
        while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |it| it.parse().unwrap())];
        reader.read_exact(&mut body).unwrap();
        reader.into_inner().write_all(answer.as_bytes()).unwrap();
        head + &String::from_utf8(body).unwrap()
    })
}

fn client(listener: &TcpListener) -> Client {
    let base = format!("http://{}", listener.local_addr().unwrap());
    let token = Some("secret".to_owned());
    Client::with_token(&Address::Web { base, trust: Trust::System }, token).unwrap()
}

#[test]
fn a_request_has_its_token_and_its_body_and_the_answer_is_json() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = client(&listener);
    let served = thread::spawn(move || {
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}";
        serve(listener.accept().unwrap().0, answer).join().unwrap()
    });
    let answer = client.send(Method::POST, "/api/v1/x", Some(&json!({"b": 2}))).unwrap();
    assert_eq!(answer, json!({"a": 1}));
    let request = served.join().unwrap();
    assert!(request.starts_with("POST /api/v1/x HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("authorization: Bearer secret\r\n"), "{request}");
    assert!(request.ends_with("\r\n\r\n{\"b\":2}"), "{request}");
}

#[test]
fn a_refusal_is_told_with_its_advice() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = client(&listener);
    let served = thread::spawn(move || {
        let answer = "HTTP/1.1 409 Conflict\r\nContent-Length: 34\r\n\r\n{\"detail\":\"no\",\"advice\":\"do this\"}";
        serve(listener.accept().unwrap().0, answer).join().unwrap()
    });
    let error = client.get("/api/v1/x").unwrap_err();
    served.join().unwrap();
    assert!(matches!(error, Error::Refused { status: 409, .. }), "{error:?}");
    assert_eq!((error.to_string(), error.hint().as_deref()), ("no".into(), Some("do this")));
    // Nobody listens any more.
    let error = client.get("/api/v1/x").unwrap_err();
    assert!(matches!(error, Error::Connection { unreached: true, .. }), "{error:?}");
}

#[test]
fn lines_are_followed_over_a_socket_in_a_deep_directory_and_a_turn_may_ask() {
    let place = tempfile::tempdir().unwrap();
    let deep = place.path().join("d".repeat(120));
    fs::create_dir(&deep).unwrap();
    let path = deep.join("socket");
    let (through, _directory) = short(&path).unwrap();
    let listener = UnixListener::bind(through).unwrap();
    let served = thread::spawn(move || {
        let (mut first, _) = listener.accept().unwrap();
        let mut asked = BufReader::new(first.try_clone().unwrap()).lines();
        assert!(asked.any(|line| line.unwrap().is_empty()), "the head of the request ends");
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\none\ntw\r\n";
        first.write_all(head.as_bytes()).unwrap();
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1";
        serve(listener.accept().unwrap().0, answer).join().unwrap();
        first.write_all(b"2\r\no\n\r\n0\r\n\r\n").unwrap();
    });
    let client = Client::with_token(&Address::Unix(path), None).unwrap();
    let (mut lines, mut asked) = (Vec::new(), None);
    let followed = client.follow("/api/v1/x", |line| {
        match line {
            Some(line) => lines.push(line.to_owned()),
            None if asked.is_none() => asked = Some(client.get("/api/v1/y")?),
            None => {}
        }
        Ok::<(), Error>(())
    });
    followed.unwrap();
    served.join().unwrap();
    assert_eq!((lines, asked), (vec!["one".to_owned(), "two".to_owned()], Some(json!(1))));
}

#[test]
fn a_refusal_has_a_bounded_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = client(&listener);
    let served = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut asked = BufReader::new(stream.try_clone().unwrap()).lines();
        assert!(asked.any(|line| line.unwrap().is_empty()), "the head of the request ends");
        stream.write_all(b"HTTP/1.1 500 No\r\n\r\n{\"detail\":\"").unwrap();
        let mut sent = 0;
        while stream.write_all(&[b'x'; 65536]).is_ok() {
            sent += 65536;
            assert!(sent < 64 << 20, "the client reads without end");
        }
    });
    let error = client.get("/api/v1/x").unwrap_err();
    assert!(matches!(&error, Error::Strange { why, .. } if why == "it is too long"), "{error:?}");
    // The connection is closed with the client.
    drop(client);
    served.join().unwrap();
}

#[test]
fn a_token_leaves_this_host_over_tls_only() {
    let with = |text: &str, token: Option<&str>| {
        Client::with_token(&Address::parse(text).unwrap(), token.map(str::to_owned))
    };
    let error = with("http://station:8480", Some("secret")).unwrap_err();
    assert!(matches!(error, Error::Clear { .. }) && error.hint().is_some(), "{error:?}");
    assert!(with("http://station:8480", None).is_ok());
    assert!(with("http://127.0.0.1:8480", Some("secret")).is_ok());
    assert!(with(&format!("https://station?pin={}", "ab".repeat(32)), Some("secret")).is_ok());
}
