//! What the kernel knows about a TCP connection, and the rate at which it may send.
//!
//! The options that `socket2` and `rustix` have are set by the caller.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// The beginning of `struct tcp_info` as in Linux 4.10; later kernels add fields after it.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct TcpInfo {
    states: [u8; 8],
    timers_and_segments: [u32; 4],
    in_flight: [u32; 5],
    last: [u32; 4],
    path: [u32; 2],
    rtt_us: u32,
    rtt_variation_us: u32,
    windows: [u32; 4],
    receiver: [u32; 2],
    total_retransmitted: u32,
    pacing_rate: u64,
    most_pacing_rate: u64,
    bytes_acknowledged: u64,
    bytes_received: u64,
    segments_out: u32,
    segments_in: u32,
    bytes_not_sent: u32,
    least_rtt_us: u32,
    data_segments_in: u32,
    data_segments_out: u32,
    delivery_rate: u64,
    busy_us: u64,
}

// The offsets of linux/tcp.h.
const _: () = assert!(std::mem::offset_of!(TcpInfo, rtt_us) == 68);
const _: () = assert!(std::mem::offset_of!(TcpInfo, total_retransmitted) == 100);
const _: () = assert!(std::mem::offset_of!(TcpInfo, least_rtt_us) == 148);
const _: () = assert!(std::mem::offset_of!(TcpInfo, busy_us) == 168);

/// The state of a connection, by `TCP_INFO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// Smoothed round trip.
    pub round_trip: Duration,
    /// The smallest round trip seen; zero if the kernel has none yet.
    pub least_round_trip: Duration,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Segments of data sent, with those sent again.
    pub segments: u64,
    /// Bytes per second delivered lately.
    pub delivery_rate: u64,
    /// Bytes that the other end has acknowledged.
    pub acknowledged: u64,
    /// Bytes in the send buffer that are not sent yet.
    pub not_sent: u64,
    /// The time in which data waited to be sent or to be acknowledged.
    pub busy: Duration,
}

/// Returns the state of a connection.
pub fn connection(stream: &TcpStream) -> io::Result<Connection> {
    let mut info = TcpInfo::default();
    let mut bytes = size_of::<TcpInfo>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes into `info`, which has that size and only integers, and `bytes`
    // itself. Both live through the call.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut bytes,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // The kernel begins with a minimum of u32::MAX, before it has measured a round trip.
    let least_us = if info.least_rtt_us == u32::MAX { 0 } else { info.least_rtt_us };
    Ok(Connection {
        round_trip: Duration::from_micros(info.rtt_us.into()),
        least_round_trip: Duration::from_micros(least_us.into()),
        retransmitted: info.total_retransmitted.into(),
        segments: info.data_segments_out.into(),
        delivery_rate: info.delivery_rate,
        acknowledged: info.bytes_acknowledged,
        not_sent: info.bytes_not_sent.into(),
        busy: Duration::from_micros(info.busy_us),
    })
}

/// Returns true if BBR still looks for the rate of the path: its pacing gain is above 2 only in STARTUP. False of another
/// congestion control, which has no `struct tcp_bbr_info` of 20 bytes.
pub fn is_bbr_starting(stream: &TcpStream) -> bool {
    // The fields are bw_lo, bw_hi, min_rtt, pacing_gain and cwnd_gain; gains are in 1/256 (linux/inet_diag.h).
    let mut info = [0u32; 5];
    let mut bytes = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes into `info`, which has that size and only integers, and `bytes`
    // itself. Both live through the call.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CC_INFO,
            (&raw mut info).cast(),
            &raw mut bytes,
        )
    };
    result == 0 && bytes as usize == size_of_val(&info) && info[3] > 2 << 8
}

/// Sets the most bytes per second that TCP sends on this connection, at any time; `None` is no limit. The kernel paces
/// inside TCP, without a queueing discipline.
pub fn set_pacing_rate(stream: &TcpStream, rate: Option<u64>) -> io::Result<()> {
    let rate = rate.unwrap_or(u64::MAX);
    // SAFETY: the kernel reads one u64, which lives through the call.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const rate).cast(),
            size_of::<u64>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Instant;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (stream, listener.accept().unwrap().0)
    }

    #[test]
    fn kernel_tells_round_trip_and_segments() {
        let (mut sender, mut receiver) = pair();
        sender.write_all(&[1; 100_000]).unwrap();
        receiver.read_exact(&mut [0; 100_000]).unwrap();
        let state = connection(&sender).unwrap();
        assert!(state.round_trip > Duration::ZERO && state.round_trip < Duration::from_secs(1));
        assert!(state.least_round_trip <= state.round_trip.max(Duration::from_millis(1)));
        assert!((1..100).contains(&state.segments), "{state:?}");
        assert_eq!(state.retransmitted, 0);
    }

    #[test]
    fn bbr_starts_on_a_new_connection_and_reno_never_does() {
        let (mut sender, mut receiver) = pair();
        let socket = socket2::SockRef::from(&sender);
        socket.set_tcp_congestion(b"reno").unwrap();
        assert!(!is_bbr_starting(&sender));
        // Not every kernel has BBR.
        if socket.set_tcp_congestion(b"bbr").is_ok() {
            // The gain is set by the first acknowledgement.
            sender.write_all(&[1; 1000]).unwrap();
            receiver.read_exact(&mut [0; 1000]).unwrap();
            assert!(is_bbr_starting(&sender));
        }
    }

    #[test]
    fn pacing_rate_limits_a_live_connection() {
        let (mut sender, mut receiver) = pair();
        set_pacing_rate(&sender, Some(2_000_000)).unwrap();
        let reader = std::thread::spawn(move || receiver.read_exact(&mut vec![0; 1 << 20]));
        let start = Instant::now();
        sender.write_all(&vec![1; 1 << 20]).unwrap();
        reader.join().unwrap().unwrap();
        let took = start.elapsed();
        assert!(took > Duration::from_millis(250), "1 MiB at 2 MB/s took {took:?}");
        set_pacing_rate(&sender, None).unwrap();
    }
}
