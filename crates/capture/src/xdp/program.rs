//! The XDP program of an interface: it sends the datagrams of our flows to the AF_XDP socket of their queue, and lets
//! all other packets pass to the kernel.
//!
//! ```text
//! not longer than the MTU ─► to this host or a group ─► IPv4 without options, no fragment ─► UDP ─► a flow ─► socket
//!        │ no                     │ no               └► IPv6 without extensions ──────────┘   │ no
//!        └────────────────────────┴────────────────────────── pass ◄──────────────────────────┘
//! ```
//!
//! What passes takes the way of all packets. The UDP socket of the port receives it: fragments, tagged packets, packets
//! with options, and merged packets. So the program needs only the plain case.
//!
//! The instructions are those of eBPF (RFC 9669). Registers: 2 start of the packet, 3 its end, 4 scratch, 5 destination
//! port, 6 context, 7 and 8 words of the address.

use std::net::IpAddr;

use fullbore_linux::sys::bpf::Instruction;

/// The most instructions of a program. The kernel takes more; a program of this length has 400 rules of IPv6.
const MOST_INSTRUCTIONS: usize = 4096;

/// Bytes of an Ethernet header.
pub const ETHERNET: usize = 14;

/// The flows of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flows {
    /// Addresses, each with the first and the last port.
    pub ranges: Vec<(IpAddr, u16, u16)>,
    /// The Ethernet address of the interface.
    pub ethernet: [u8; 6],
    /// The longest packet of the network that the interface takes, in bytes.
    pub mtu: usize,
    /// True if a packet may be in several buffers.
    pub in_parts: bool,
}

/// The program would be too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an XDP program for these ports has {instructions} instructions, and {MOST_INSTRUCTIONS} is the most"
)]
pub struct TooLong {
    /// Its length.
    pub instructions: usize,
}

// Operations.
const LOAD_WORD: u8 = 0x61;
const LOAD_HALF: u8 = 0x69;
const LOAD_BYTE: u8 = 0x71;
const MOVE: u8 = 0xbf;
const MOVE_IMMEDIATE: u8 = 0xb7;
const LOAD_MAP: u8 = 0x18;
const ADD: u8 = 0x07;
const AND: u8 = 0x57;
const TO_BIG_ENDIAN: u8 = 0xdc;
const JUMP: u8 = 0x05;
const JUMP_IF_EQUAL: u8 = 0x15;
const JUMP_IF_NOT_EQUAL: u8 = 0x55;
const JUMP_IF_NOT_EQUAL_WORD: u8 = 0x56;
const JUMP_IF_ABOVE: u8 = 0x25;
const JUMP_IF_BELOW: u8 = 0xa5;
const JUMP_IF_ABOVE_REGISTER: u8 = 0x2d;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// The source register that marks a load of a map by its descriptor (`BPF_PSEUDO_MAP_FD`).
const MAP_DESCRIPTOR: u8 = 1;

// Helpers of the kernel, by their numbers.
const REDIRECT_MAP: i32 = 51;
const GET_BUFF_LEN: i32 = 188;

/// `XDP_PASS`.
const PASS: i32 = 2;

// The context of a program (`struct xdp_md`).
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;

const UDP: i32 = 17;

/// Builds the program. `map` is the number of the map of sockets.
pub fn build(flows: &Flows, map: i32) -> Result<Vec<Instruction>, TooLong> {
    let mut program = Assembler::default();
    let (pass, take, ipv4, ipv6) =
        (program.label(), program.label(), program.label(), program.label());
    program.push(MOVE, 6, 1, 0, 0);
    if flows.in_parts {
        // In one buffer, no packet is longer than a buffer. In several, merged packets are.
        program.push(CALL, 0, 0, 0, GET_BUFF_LEN);
        program.jump(JUMP_IF_ABOVE, 0, (flows.mtu + ETHERNET) as i32, pass);
    }
    program.push(LOAD_WORD, 2, 6, DATA, 0);
    program.push(LOAD_WORD, 3, 6, DATA_END, 0);
    program.reach(ETHERNET + 28, pass);
    let own = program.label();
    program.push(LOAD_BYTE, 4, 2, 0, 0);
    program.push(AND, 4, 0, 0, 1);
    program.jump(JUMP_IF_NOT_EQUAL, 4, 0, own);
    let first = i32::from_ne_bytes(std::array::from_fn(|at| flows.ethernet[at]));
    let last = u16::from_ne_bytes(std::array::from_fn(|at| flows.ethernet[4 + at]));
    program.push(LOAD_WORD, 4, 2, 0, 0);
    program.jump(JUMP_IF_NOT_EQUAL_WORD, 4, first, pass);
    program.push(LOAD_HALF, 4, 2, 4, 0);
    program.jump(JUMP_IF_NOT_EQUAL, 4, last.into(), pass);
    program.place(own);
    program.push(LOAD_HALF, 4, 2, 12, 0);
    program.jump(JUMP_IF_EQUAL, 4, network_order(0x0800), ipv4);
    program.jump(JUMP_IF_EQUAL, 4, network_order(0x86dd), ipv6);
    program.jump(JUMP, 0, 0, pass);
    program.place(ipv4);
    program.ipv4(flows, pass, take);
    program.place(ipv6);
    program.ipv6(flows, pass, take);
    program.place(take);
    program.push(LOAD_WORD, 2, 6, QUEUE, 0);
    program.push(LOAD_MAP, 1, MAP_DESCRIPTOR, 0, map);
    program.push(0, 0, 0, 0, 0);
    // The answer for a queue without a socket.
    program.push(MOVE_IMMEDIATE, 3, 0, 0, PASS);
    program.push(CALL, 0, 0, 0, REDIRECT_MAP);
    program.push(EXIT, 0, 0, 0, 0);
    program.place(pass);
    program.push(MOVE_IMMEDIATE, 0, 0, 0, PASS);
    program.push(EXIT, 0, 0, 0, 0);
    program.finish()
}

/// A number of two bytes as a load of its bytes in network order gives it.
fn network_order(number: u16) -> i32 {
    number.to_be().into()
}

/// A place in the program that jumps lead to.
#[derive(Clone, Copy)]
struct Label(usize);

#[derive(Default)]
struct Assembler {
    instructions: Vec<Instruction>,
    /// The places of labels, as far as they are known.
    places: Vec<usize>,
    /// Jumps, each with its label.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        let registers = to | from << 4;
        self.instructions.push(Instruction { code, registers, offset, immediate });
    }

    fn label(&mut self) -> Label {
        self.places.push(usize::MAX);
        Label(self.places.len() - 1)
    }

    fn place(&mut self, label: Label) {
        self.places[label.0] = self.instructions.len();
    }

    fn jump(&mut self, code: u8, register: u8, immediate: i32, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.push(code, register, 0, 0, immediate);
    }

    /// Leaves to `otherwise` unless the packet has this many bytes in its first buffer.
    fn reach(&mut self, bytes: usize, otherwise: Label) {
        self.push(MOVE, 4, 2, 0, 0);
        self.push(ADD, 4, 0, 0, bytes as i32);
        self.jumps.push((self.instructions.len(), otherwise));
        self.push(JUMP_IF_ABOVE_REGISTER, 4, 3, 0, 0);
    }

    fn ipv4(&mut self, flows: &Flows, pass: Label, take: Label) {
        self.push(LOAD_BYTE, 4, 2, 14, 0);
        self.jump(JUMP_IF_NOT_EQUAL, 4, 0x45, pass);
        self.push(LOAD_BYTE, 4, 2, 23, 0);
        self.jump(JUMP_IF_NOT_EQUAL, 4, UDP, pass);
        // More fragments, or an offset.
        self.push(LOAD_HALF, 4, 2, 20, 0);
        self.push(AND, 4, 0, 0, network_order(0x3fff));
        self.jump(JUMP_IF_NOT_EQUAL, 4, 0, pass);
        self.push(LOAD_HALF, 5, 2, 36, 0);
        self.push(TO_BIG_ENDIAN, 5, 0, 0, 16);
        self.push(LOAD_WORD, 7, 2, 30, 0);
        for &(address, first, last) in &flows.ranges {
            let IpAddr::V4(address) = address else { continue };
            let next = self.port(first, last);
            self.jump(JUMP_IF_NOT_EQUAL_WORD, 7, i32::from_ne_bytes(address.octets()), next);
            self.jump(JUMP, 0, 0, take);
            self.place(next);
        }
        self.jump(JUMP, 0, 0, pass);
    }

    fn ipv6(&mut self, flows: &Flows, pass: Label, take: Label) {
        self.reach(ETHERNET + 48, pass);
        self.push(LOAD_BYTE, 4, 2, 20, 0);
        self.jump(JUMP_IF_NOT_EQUAL, 4, UDP, pass);
        self.push(LOAD_HALF, 5, 2, 56, 0);
        self.push(TO_BIG_ENDIAN, 5, 0, 0, 16);
        for &(address, first, last) in &flows.ranges {
            let IpAddr::V6(address) = address else { continue };
            let next = self.port(first, last);
            for (number, word) in address.octets().as_chunks::<4>().0.iter().enumerate() {
                self.push(LOAD_WORD, 7, 2, 38 + 4 * number as i16, 0);
                self.jump(JUMP_IF_NOT_EQUAL_WORD, 7, i32::from_ne_bytes(*word), next);
            }
            self.jump(JUMP, 0, 0, take);
            self.place(next);
        }
        self.jump(JUMP, 0, 0, pass);
    }

    /// Goes to the returned label unless the port is in the range.
    fn port(&mut self, first: u16, last: u16) -> Label {
        let next = self.label();
        self.jump(JUMP_IF_BELOW, 5, first.into(), next);
        self.jump(JUMP_IF_ABOVE, 5, last.into(), next);
        next
    }

    fn finish(mut self) -> Result<Vec<Instruction>, TooLong> {
        let instructions = self.instructions.len();
        if instructions > MOST_INSTRUCTIONS {
            return Err(TooLong { instructions });
        }
        for (from, label) in self.jumps {
            // A jump counts from the instruction behind it.
            self.instructions[from].offset = (self.places[label.0] - from - 1) as i16;
        }
        Ok(self.instructions)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use fullbore_formats::pcap::udp_packet;
    use fullbore_linux::sys::bpf::{Program, SocketMap};
    use proptest::prelude::*;
    use rustix::io::Errno;
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::*;

    const OWN: [u8; 6] = [2, 0x11, 0x22, 0xf3, 0x44, 0x95];
    const MAP: i32 = 77;

    /// Runs a program as the kernel does. Returns true if it takes the packet.
    fn takes(program: &[Instruction], packet: &[u8]) -> bool {
        // Addresses in registers are places in the packet, above a base that no number reaches.
        const BASE: u64 = 1 << 40;
        let mut registers = [0u64; 11];
        registers[1] = u64::MAX;
        let mut at = 0;
        let load = |registers: &[u64], from: usize, offset: i16, bytes: usize| -> u64 {
            if registers[from] == u64::MAX {
                return match offset {
                    DATA => BASE,
                    DATA_END => BASE + packet.len() as u64,
                    QUEUE => 3,
                    other => panic!("no field of the context: {other}"),
                };
            }
            let start = (registers[from] - BASE) as usize + offset as usize;
            let mut value = [0; 8];
            value[..bytes].copy_from_slice(&packet[start..start + bytes]);
            u64::from_ne_bytes(value)
        };
        loop {
            let Instruction { code, registers: pair, offset, immediate } = program[at];
            let (to, from) = (usize::from(pair & 15), usize::from(pair >> 4));
            at += 1;
            let wide = i64::from(immediate) as u64;
            let jumps = match code {
                LOAD_WORD => {
                    registers[to] = load(&registers, from, offset, 4);
                    false
                }
                LOAD_HALF => {
                    registers[to] = load(&registers, from, offset, 2);
                    false
                }
                LOAD_BYTE => {
                    registers[to] = load(&registers, from, offset, 1);
                    false
                }
                MOVE => {
                    registers[to] = registers[from];
                    false
                }
                MOVE_IMMEDIATE => {
                    registers[to] = wide;
                    false
                }
                ADD => {
                    registers[to] = registers[to].wrapping_add(wide);
                    false
                }
                AND => {
                    registers[to] &= wide;
                    false
                }
                TO_BIG_ENDIAN => {
                    registers[to] = u64::from((registers[to] as u16).to_be());
                    false
                }
                LOAD_MAP => {
                    assert_eq!((from, immediate), (1, MAP));
                    at += 1;
                    false
                }
                CALL if immediate == GET_BUFF_LEN => {
                    registers[0] = packet.len() as u64;
                    registers[1..6].fill(0);
                    false
                }
                CALL => {
                    assert_eq!((immediate, registers[2], registers[3]), (REDIRECT_MAP, 3, 2));
                    return true;
                }
                EXIT => {
                    assert_eq!(registers[0], 2);
                    return false;
                }
                JUMP => true,
                JUMP_IF_EQUAL => registers[to] == wide,
                JUMP_IF_NOT_EQUAL => registers[to] != wide,
                JUMP_IF_NOT_EQUAL_WORD => registers[to] as u32 != immediate as u32,
                JUMP_IF_ABOVE => registers[to] > wide,
                JUMP_IF_BELOW => registers[to] < wide,
                JUMP_IF_ABOVE_REGISTER => registers[to] > registers[from],
                other => panic!("no such instruction: {other:x}"),
            };
            if jumps {
                at = (at as i64 + i64::from(offset)) as usize;
            }
        }
    }

    fn flows(texts: &[(&str, u16, u16)]) -> Flows {
        let range =
            |&(address, first, last): &(&str, u16, u16)| (address.parse().unwrap(), first, last);
        let ranges = texts.iter().map(range).collect();
        Flows { ranges, ethernet: OWN, mtu: 1500, in_parts: true }
    }

    fn packet_of(to: SocketAddr, bytes: usize) -> Vec<u8> {
        let from = if to.is_ipv4() { "10.0.0.9:77" } else { "[fd00::9]:77" };
        let mut packet = udp_packet(from.parse().unwrap(), to, &[&vec![5; bytes]]).unwrap();
        packet[..6].copy_from_slice(&OWN);
        packet
    }

    fn packet(to: &str) -> Vec<u8> {
        packet_of(to.parse().unwrap(), 100)
    }

    #[test]
    fn datagrams_of_the_flows_are_taken_and_all_others_pass() {
        let flows = flows(&[
            ("10.0.0.1", 5000, 5003),
            ("239.1.2.3", 5010, 5010),
            ("200.255.254.253", 65_535, 65_535),
            ("fd00::1", 5000, 5000),
        ]);
        let program = build(&flows, MAP).unwrap();
        for to in [
            "10.0.0.1:5000",
            "10.0.0.1:5003",
            "239.1.2.3:5010",
            "200.255.254.253:65535",
            "[fd00::1]:5000",
        ] {
            assert!(takes(&program, &packet(to)), "{to}");
        }
        for to in [
            "10.0.0.1:4999",
            "10.0.0.1:5004",
            "10.0.0.2:5000",
            "239.1.2.3:5000",
            "[fd00::2]:5000",
            "[fd00::1]:5001",
        ] {
            assert!(!takes(&program, &packet(to)), "{to}");
        }
    }

    #[test]
    fn packets_to_other_hosts_pass_and_those_to_a_group_are_taken() {
        let program = build(&flows(&[("10.0.0.1", 5000, 5000)]), MAP).unwrap();
        for at in 0..6 {
            let mut other = packet("10.0.0.1:5000");
            other[at] ^= 0x40;
            assert!(!takes(&program, &other), "{at}");
        }
        let mut group = packet("10.0.0.1:5000");
        group[..6].copy_from_slice(&[0x01, 0, 0x5e, 1, 2, 3]);
        assert!(takes(&program, &group));
    }

    #[test]
    fn fragments_options_tags_and_other_protocols_pass() {
        let program =
            build(&flows(&[("10.0.0.1", 5000, 5000), ("fd00::1", 5000, 5000)]), MAP).unwrap();
        let changed = |to: &str, at: usize, value: u8| {
            let mut packet = packet(to);
            packet[at] = value;
            takes(&program, &packet)
        };
        let four = "10.0.0.1:5000";
        for (at, value, taken) in [
            (20, 0x40, true), // "do not fragment"
            (20, 0x20, false),
            (20, 0x01, false),
            (21, 0x01, false),
            (14, 0x46, false),
            (14, 0x65, false),
            (23, 6, false),
            (13, 0x06, false),
            (12, 0x81, false),
        ] {
            assert_eq!(changed(four, at, value), taken, "byte {at} is {value:x}");
        }
        for next in [0, 6, 44, 58, 60] {
            assert!(!changed("[fd00::1]:5000", 20, next), "{next}");
        }
    }

    #[test]
    fn packets_that_are_cut_and_merged_ones_pass() {
        let flows = flows(&[("10.0.0.1", 5000, 5000), ("fd00::1", 5000, 5000)]);
        let program = build(&flows, MAP).unwrap();
        for (to, headers) in [("10.0.0.1:5000", 42), ("[fd00::1]:5000", 62)] {
            let whole = packet(to);
            for length in 0..whole.len() {
                assert_eq!(takes(&program, &whole[..length]), length >= headers, "{length}");
            }
        }
        let to: SocketAddr = "10.0.0.1:5000".parse().unwrap();
        assert!(takes(&program, &packet_of(to, 1472)));
        assert!(!takes(&program, &packet_of(to, 1473)), "longer than the network takes");
        let alone = build(&Flows { in_parts: false, ..flows }, MAP).unwrap();
        assert!(!alone.iter().any(|it| it.code == CALL && it.immediate == GET_BUFF_LEN));
    }

    #[test]
    fn a_program_for_too_many_flows_is_refused_with_its_length() {
        let ranges = |count: u16| (0..count).map(|n| ("10.0.0.1".parse().unwrap(), 2 * n, 2 * n));
        let of = |count| Flows { ranges: ranges(count).collect(), ..flows(&[]) };
        let program = build(&of(900), MAP).unwrap();
        assert!(takes(&program, &packet("10.0.0.1:1798")));
        assert!(!takes(&program, &packet("10.0.0.1:1799")));
        assert!(build(&of(2000), MAP).unwrap_err().instructions > MOST_INSTRUCTIONS);
    }

    #[test]
    fn the_kernel_takes_the_longest_program_from_a_process_with_the_rights_of_the_how_to() {
        let address = |n: u16| -> IpAddr {
            match n % 2 {
                0 => "10.0.0.1".parse().unwrap(),
                _ => "fd00::1".parse().unwrap(),
            }
        };
        let ranges = (0..500).map(|n| (address(n), 2 * n, 2 * n)).collect();
        let flows = Flows { ranges, ..flows(&[]) };
        let length = build(&flows, MAP).unwrap().len();
        assert!((3500..MOST_INSTRUCTIONS).contains(&length), "{length}");
        // Without CAP_PERFMON, the verifier also follows what a processor does by speculation.
        let load = move || {
            let mut sets = capabilities(None).unwrap();
            sets.effective &= CapabilitySet::NET_ADMIN | CapabilitySet::BPF;
            (sets.permitted, sets.inheritable) = (sets.effective, CapabilitySet::empty());
            set_capabilities(None, sets).unwrap();
            let map = SocketMap::new(2)?;
            Program::load(&build(&flows, map.number()).unwrap(), true).map(drop)
        };
        if let Err(error) = std::thread::spawn(load).join().unwrap() {
            let is_refused = Errno::from_io_error(&error.source) == Some(Errno::PERM);
            assert!(is_refused, "{error}: {}", error.source);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged_without_a_read_outside_of_them(
            mut bytes in prop::collection::vec(any::<u8>(), 0..90),
            kind in prop::sample::select(vec![[8u8, 0], [0x86, 0xdd], [0x81, 0]]),
            is_own: bool,
        ) {
            if let Some(header) = bytes.get_mut(..14) {
                header[12..].copy_from_slice(&kind);
                if is_own {
                    header[..6].copy_from_slice(&OWN);
                }
            }
            let flows = flows(&[("10.0.0.1", 0, 65_535), ("fd00::1", 0, 65_535)]);
            prop_assert!(!takes(&build(&flows, MAP).unwrap(), &bytes));
        }
    }
}
