//! The classic packet filter (cBPF) of a packet ring: it accepts UDP to exactly the ports and addresses of its sources.
//!
//! ```text
//! not to another host ──► Ethernet type, behind a VLAN tag too ──► UDP ──► for each rule: port, address, interface ──► accept
//!                                                              └─► fragment: address, interface ──► accept
//! ```
//!
//! A later fragment has no port, so all fragments of UDP to an address are accepted. Each rule is a run of checks that
//! ends in an acceptance; the first check that fails leads to the next rule.

use std::net::{IpAddr, SocketAddr};

use fullbore_linux::sys::packet::{Instruction, MOST_INSTRUCTIONS, Protocol};

/// Which datagrams a source takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRule {
    /// The port, and the address: that of this host, a group, or any.
    pub address: SocketAddr,
    /// The number of the only interface, if there is one.
    pub interface: Option<u32>,
}

impl PortRule {
    /// True if it takes datagrams to this address that came through this interface.
    pub fn takes(&self, to: IpAddr, interface: u32) -> bool {
        let (own, any) = (self.address.ip(), self.address.ip().is_unspecified());
        // The IPv6 wildcard is every address of both families.
        let address = own == to || any && (own.is_ipv6() || to.is_ipv4());
        address && self.interface.is_none_or(|only| only == interface)
    }

    /// True if it takes datagrams of a protocol.
    pub fn is_of(&self, protocol: Protocol) -> bool {
        match protocol {
            Protocol::Ipv4 => self.address.is_ipv4() || self.address.ip().is_unspecified(),
            Protocol::Ipv6 => self.address.is_ipv6(),
        }
    }
}

// Codes of `linux/bpf_common.h`.
const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF_FROM_X: u16 = 0x48;
const LOAD_STORED: u16 = 0x60;
const X_IS_HEADER_BYTES: u16 = 0xb1;
const STORE: u16 = 0x02;
const EQUAL: u16 = 0x15;
const GREATER: u16 = 0x25;
const AT_LEAST: u16 = 0x35;
const ANY_BIT: u16 = 0x45;
const JUMP: u16 = 0x05;
const RETURN: u16 = 0x06;

/// `SKF_AD_OFF`: facts of the kernel about a packet.
const FACTS: u32 = -0x1000_i32 as u32;
const PACKET_TYPE: u32 = FACTS + 4;
const INTERFACE: u32 = FACTS + 8;

/// The last type of packets to this host: host, broadcast, multicast. Then those to others follow.
const LAST_TYPE_FOR_US: u32 = 2;

/// More bytes than any packet has: all of it.
const ACCEPTED: u32 = 0x40000;

const ETHERNET: u32 = 14;
const VLAN: u32 = 4;
const UDP: u32 = 17;

/// Headers of IPv6 that may precede UDP: hop-by-hop, routing, fragment, authentication, destination.
const BEFORE_UDP: [u32; 5] = [0, 43, 44, 51, 60];

/// The filter would have more instructions than the kernel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a packet filter for these ports has {instructions} instructions, and the kernel takes {MOST_INSTRUCTIONS}"
)]
pub struct TooLong {
    /// Its length.
    pub instructions: usize,
}

/// Builds the filter of a ring.
pub fn build(protocol: Protocol, rules: &[PortRule]) -> Result<Vec<Instruction>, TooLong> {
    let rules = ranges(protocol, rules);
    let mut program = Program::default();
    program.load(LOAD_WORD, PACKET_TYPE);
    program.reject_if(GREATER, LAST_TYPE_FOR_US);
    let plain = program.protocol(protocol, ETHERNET, &rules);
    let mut tagged = Program::default();
    // Only an interface that keeps tags in its packets (`reorder_hdr off`) shows one here.
    tagged.load(LOAD_HALF, 12);
    tagged.reject_unless_one_of(&[0x8100, 0x88a8]);
    let behind = tagged.protocol(protocol, ETHERNET + VLAN, &rules);
    program.load(LOAD_HALF, 12);
    program.skip_unless(protocol, plain.0.len());
    program.0.extend(plain.0);
    program.0.extend(tagged.0);
    program.0.extend(behind.0);
    match program.0.len() {
        instructions if instructions > MOST_INSTRUCTIONS => Err(TooLong { instructions }),
        _ => Ok(program.0),
    }
}

/// Ports in a row with the same address and interface.
#[derive(Clone, Copy)]
struct Range {
    first: u16,
    last: u16,
    address: Option<IpAddr>,
    interface: Option<u32>,
}

fn ranges(protocol: Protocol, rules: &[PortRule]) -> Vec<Range> {
    let mut rules: Vec<&PortRule> = rules.iter().filter(|rule| rule.is_of(protocol)).collect();
    rules.sort_by_key(|rule| (rule.address.ip(), rule.interface, rule.address.port()));
    let mut ranges: Vec<Range> = Vec::new();
    for rule in rules {
        let (port, ip) = (rule.address.port(), rule.address.ip());
        let address = (!ip.is_unspecified()).then_some(ip);
        match ranges.last_mut() {
            Some(range)
                if (range.address, range.interface) == (address, rule.interface)
                    && u32::from(port) <= u32::from(range.last) + 1 =>
            {
                range.last = port;
            }
            _ => {
                let interface = rule.interface;
                ranges.push(Range { first: port, last: port, address, interface });
            }
        }
    }
    ranges
}

#[derive(Default)]
struct Program(Vec<Instruction>);

impl Program {
    fn push(&mut self, code: u16, if_true: u8, if_false: u8, operand: u32) {
        self.0.push(Instruction { code, if_true, if_false, operand });
    }

    fn load(&mut self, code: u16, operand: u32) {
        self.push(code, 0, 0, operand);
    }

    fn answer(&mut self, bytes: u32) {
        self.push(RETURN, 0, 0, bytes);
    }

    fn reject_if(&mut self, comparison: u16, operand: u32) {
        self.push(comparison, 0, 1, operand);
        self.answer(0);
    }

    fn reject_unless_one_of(&mut self, values: &[u32]) {
        for (number, value) in values.iter().enumerate() {
            self.push(EQUAL, (values.len() - number) as u8, 0, *value);
        }
        self.answer(0);
    }

    /// Skips `length` instructions unless the Ethernet type is that of the protocol.
    fn skip_unless(&mut self, protocol: Protocol, length: usize) {
        let number = match protocol {
            Protocol::Ipv4 => 0x0800,
            Protocol::Ipv6 => 0x86dd,
        };
        self.push(EQUAL, 1, 0, number);
        self.push(JUMP, 0, 0, length as u32);
    }

    /// The instructions for the header of the network, which is `at` bytes behind the start.
    fn protocol(&self, protocol: Protocol, at: u32, rules: &[Range]) -> Program {
        let mut program = Program::default();
        match protocol {
            Protocol::Ipv4 => program.ipv4(at, rules),
            Protocol::Ipv6 => program.ipv6(at, rules),
        }
        program
    }

    fn ipv4(&mut self, at: u32, rules: &[Range]) {
        self.load(LOAD_BYTE, at + 9);
        self.push(EQUAL, 1, 0, UDP);
        self.answer(0);
        let words = |address: IpAddr| match address {
            IpAddr::V4(address) => vec![(at + 16, u32::from(address))],
            IpAddr::V6(_) => unreachable!("the rules are of one protocol"),
        };
        let mut whole = Program::default();
        whole.load(X_IS_HEADER_BYTES, at);
        whole.load(LOAD_HALF_FROM_X, at + 2);
        whole.load(STORE, 0);
        rules.iter().for_each(|rule| whole.rule(rule, true, words));
        whole.answer(0);
        // More fragments, or an offset.
        self.load(LOAD_HALF, at + 6);
        self.push(ANY_BIT, 0, 1, 0x3fff);
        self.push(JUMP, 0, 0, whole.0.len() as u32);
        self.0.extend(whole.0);
        rules.iter().for_each(|rule| self.rule(rule, false, words));
        self.answer(0);
    }

    fn ipv6(&mut self, at: u32, rules: &[Range]) {
        let words = |address: IpAddr| match address {
            IpAddr::V6(address) => {
                let (words, _) = address.octets().as_chunks::<4>().0.iter().fold(
                    (Vec::new(), at + 24),
                    |(mut words, place), word| {
                        words.push((place, u32::from_be_bytes(*word)));
                        (words, place + 4)
                    },
                );
                words
            }
            IpAddr::V4(_) => unreachable!("the rules are of one protocol"),
        };
        let mut whole = Program::default();
        whole.load(LOAD_HALF, at + 42);
        whole.load(STORE, 0);
        rules.iter().for_each(|rule| whole.rule(rule, true, words));
        whole.answer(0);
        self.load(LOAD_BYTE, at + 6);
        self.push(EQUAL, 1, 0, UDP);
        self.push(JUMP, 0, 0, whole.0.len() as u32);
        self.0.extend(whole.0);
        // A header before UDP, which may be that of a fragment. The accumulator still has its number.
        self.reject_unless_one_of(&BEFORE_UDP);
        rules.iter().for_each(|rule| self.rule(rule, false, words));
        self.answer(0);
    }

    /// Accepts what a rule takes; else goes on behind it. The port is stored.
    fn rule(&mut self, rule: &Range, has_port: bool, words: impl Fn(IpAddr) -> Vec<(u32, u32)>) {
        let mut checks: Vec<Instruction> = Vec::new();
        let mut check = |code, operand| {
            checks.push(Instruction { code, if_true: 0, if_false: 0, operand });
        };
        if has_port {
            check(LOAD_STORED, 0);
            check(AT_LEAST, rule.first.into());
            check(GREATER, rule.last.into());
        }
        for (place, word) in rule.address.into_iter().flat_map(words) {
            check(LOAD_WORD, place);
            check(EQUAL, word);
        }
        if let Some(interface) = rule.interface {
            check(LOAD_WORD, INTERFACE);
            check(EQUAL, interface);
        }
        let length = checks.len();
        for (number, mut check) in checks.into_iter().enumerate() {
            // Over the rest of the checks and the acceptance.
            let behind = (length - number) as u8;
            match check.code {
                EQUAL | AT_LEAST => check.if_false = behind,
                GREATER => check.if_true = behind,
                _ => {}
            }
            self.0.push(check);
        }
        self.answer(ACCEPTED);
    }
}

#[cfg(test)]
mod tests {
    use fullbore_formats::pcap::udp_packet;

    use super::*;

    /// Runs a filter as the kernel does. Returns true if it accepts the packet.
    fn accepts(program: &[Instruction], packet: &[u8], kind: u32, interface: u32) -> bool {
        let (mut at, mut a, mut x, mut stored) = (0, 0u32, 0u32, [0u32; 16]);
        let bytes = |place: u32, length: usize| -> Option<u32> {
            let bytes = packet.get(place as usize..place as usize + length)?;
            Some(bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
        };
        loop {
            let Instruction { code, if_true, if_false, operand } = program[at];
            at += 1;
            let loaded = match code {
                LOAD_WORD if operand == PACKET_TYPE => Some(kind),
                LOAD_WORD if operand == INTERFACE => Some(interface),
                LOAD_WORD => bytes(operand, 4),
                LOAD_HALF => bytes(operand, 2),
                LOAD_BYTE => bytes(operand, 1),
                LOAD_HALF_FROM_X => bytes(x + operand, 2),
                LOAD_STORED => Some(stored[operand as usize]),
                _ => Some(a),
            };
            // The kernel rejects a packet that is too short for a load.
            let Some(value) = loaded else { return false };
            a = value;
            let jump = |holds: bool| usize::from(if holds { if_true } else { if_false });
            match code {
                X_IS_HEADER_BYTES => match bytes(operand, 1) {
                    Some(byte) => x = (byte & 15) * 4,
                    None => return false,
                },
                STORE => stored[operand as usize] = a,
                EQUAL => at += jump(a == operand),
                GREATER => at += jump(a > operand),
                AT_LEAST => at += jump(a >= operand),
                ANY_BIT => at += jump(a & operand != 0),
                JUMP => at += operand as usize,
                RETURN => return operand > 0,
                _ => {}
            }
        }
    }

    fn rule(text: &str, interface: Option<u32>) -> PortRule {
        PortRule { address: text.parse().unwrap(), interface }
    }

    fn packet(to: &str) -> Vec<u8> {
        let to: SocketAddr = to.parse().unwrap();
        let from = if to.is_ipv4() { "10.0.0.9:77" } else { "[fd00::9]:77" };
        udp_packet(from.parse().unwrap(), to, &[&[1; 40]]).unwrap()
    }

    fn tagged(packet: &[u8]) -> Vec<u8> {
        [&packet[..12], &[0x81, 0x00, 0, 5], &packet[12..]].concat()
    }

    #[test]
    fn a_filter_accepts_its_ports_and_addresses_and_nothing_else() {
        let rules: Vec<PortRule> = [
            rule("10.0.0.1:5000", None),
            rule("10.0.0.1:5002", None),
            rule("10.0.0.1:5001", None),
            rule("0.0.0.0:7000", Some(3)),
            rule("239.1.2.3:6000", None),
            rule("[fd00::1]:5000", None),
            rule("[::]:8000", None),
        ]
        .into();
        let accepted = [
            "10.0.0.1:5000",
            "10.0.0.1:5001",
            "10.0.0.1:5002",
            "1.2.3.4:7000",
            "239.1.2.3:6000",
            "[fd00::1]:5000",
            "10.0.0.1:8000",
            "[fd00::7]:8000",
        ]; // fmt: skip
        let refused = [
            "10.0.0.1:4999",
            "10.0.0.1:5003",
            "10.0.0.2:5000",
            "239.1.2.3:5000",
            "[fd00::2]:5000",
            "[fd00::1]:5001",
            "[fd00::1]:7000",
        ]; // fmt: skip
        let [four, six] = [Protocol::Ipv4, Protocol::Ipv6].map(|it| build(it, &rules).unwrap());
        let judge = |packet: &[u8], to: &str, kind, interface| {
            let accepted = accepts(&four, packet, kind, interface);
            let by_six = accepts(&six, packet, kind, interface);
            assert!(!(accepted && by_six), "{to} would come twice");
            let by_user = rules.iter().any(|rule| {
                let to: SocketAddr = to.parse().unwrap();
                rule.address.port() == to.port() && rule.takes(to.ip(), interface)
            });
            assert_eq!(by_user, accepted || by_six || kind > 2, "{to}: as the sorter judges");
            accepted || by_six
        };
        for to in accepted {
            for packet in [packet(to), tagged(&packet(to))] {
                assert!(judge(&packet, to, 0, 3), "{to}");
                assert!(!judge(&packet, to, 3, 3), "{to} of another host");
            }
        }
        assert!(!judge(&packet("1.2.3.4:7000"), "1.2.3.4:7000", 0, 4), "another interface");
        for to in refused {
            assert!(!judge(&packet(to), to, 0, 3), "{to}");
        }
    }

    #[test]
    fn options_before_the_udp_header_and_fragments_are_seen_through() {
        let four = build(Protocol::Ipv4, &[rule("10.0.0.1:5000", None)]).unwrap();
        let mut with_options = packet("10.0.0.1:5000");
        with_options[14] = 0x46;
        with_options.splice(34..34, [1; 4]);
        assert!(accepts(&four, &with_options, 0, 1));
        for (flags, to, expected) in [
            (0x2000u16, "10.0.0.1:9", true),
            (0x0005, "10.0.0.1:9", true),
            (0x2000, "10.0.0.2:5000", false),
        ] {
            let mut fragment = packet(to);
            fragment[20..22].copy_from_slice(&flags.to_be_bytes());
            assert_eq!(accepts(&four, &fragment, 0, 1), expected, "{to} {flags:x}");
        }
        let six = build(Protocol::Ipv6, &[rule("[fd00::1]:5000", None)]).unwrap();
        for (next, expected) in [(44, true), (60, true), (6, false), (58, false)] {
            let mut packet = packet("[fd00::1]:9");
            packet[20] = next;
            assert_eq!(accepts(&six, &packet, 0, 1), expected, "{next}");
        }
    }

    #[test]
    fn packets_that_are_cut_anywhere_and_other_protocols_are_refused() {
        let four = build(Protocol::Ipv4, &[rule("10.0.0.1:5000", None)]).unwrap();
        let whole = packet("10.0.0.1:5000");
        for length in 0..38 {
            assert!(!accepts(&four, &whole[..length], 0, 1), "{length}");
        }
        let mut tcp = whole.clone();
        tcp[23] = 6;
        assert!(!accepts(&four, &tcp, 0, 1));
    }

    #[test]
    fn a_filter_of_many_scattered_ports_is_refused_with_its_length() {
        let rules = |count: u16| -> Vec<PortRule> {
            (0..count).map(|n| rule(&format!("10.0.0.1:{}", 1000 + 2 * n), None)).collect()
        };
        let program = build(Protocol::Ipv4, &rules(200)).unwrap();
        assert!(accepts(&program, &packet("10.0.0.1:1398"), 0, 1));
        assert!(!accepts(&program, &packet("10.0.0.1:1399"), 0, 1));
        assert!(build(Protocol::Ipv4, &rules(2000)).unwrap_err().instructions > MOST_INSTRUCTIONS);
    }
}
