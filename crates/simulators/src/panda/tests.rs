//! Tests the PandA client against the simulated PandA.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fullbore_core::hint::Hint;
use fullbore_core::panda::PandaSource;
use fullbore_formats::panda::control::{self as lines, Captured};
use fullbore_formats::panda::{
    ConnectionTotals, EndReason, Ending, Event, Header, SampleValidator,
};
use fullbore_panda::*;

use crate::panda::{FIELDS, Plan, Server, ServerEvent};

fn plan() -> Plan {
    Plan {
        control: "127.0.0.1:0".parse().unwrap(),
        data: "127.0.0.1:0".parse().unwrap(),
        fields: FIELDS.to_owned(),
        samples_per_second: None,
        samples: Some(50_000),
        ring_bytes: 8 << 20,
        faults: Vec::new(),
        split: false,
        seed: 7,
        dump: None,
        replay: None,
    }
}

/// A simulated PandA and connections to it.
struct Bench {
    source: PandaSource,
    control: ControlPort,
    data: DataStream,
    notices: Arc<Mutex<Vec<ServerEvent>>>,
    server: Server,
}

/// One acquisition as a recorder keeps it: the certified samples and the events.
#[derive(Debug)]
struct Taken {
    header: Header,
    payload: Vec<u8>,
    tally: ConnectionTotals,
}

impl Taken {
    fn certified(&self) -> &[u8] {
        let bytes = self.tally.certified as usize * self.header.sample_bytes as usize;
        &self.payload[..bytes]
    }

    fn check(&self) {
        let words = self.header.sample_bytes as usize / 4;
        for (n, sample) in self.certified().chunks_exact(words * 4).enumerate() {
            let index = (self.tally.missed + n as u64) as u32;
            let expected = [index.to_le_bytes()].repeat(words).concat();
            assert_eq!(sample, expected, "sample {index}");
        }
    }
}

impl Bench {
    fn new(plan: Plan, options: &str) -> Bench {
        let notices = Arc::new(Mutex::new(Vec::new()));
        let kept = notices.clone();
        let server = Server::start(plan, move |notice| kept.lock().unwrap().push(notice)).unwrap();
        let (control, data) = (server.control(), server.data());
        let host = if control.is_ipv6() { "[::1]" } else { "127.0.0.1" };
        let text = format!("panda://{host}:{}?data={}{options}", control.port(), data.port());
        let source = PandaSource::parse(&text).unwrap();
        let control = ControlPort::connect(&source, Timeouts::default()).unwrap();
        let mut bench = Bench { data: Bench::stream(&source), source, control, notices, server };
        bench.ready();
        bench
    }

    fn stream(source: &PandaSource) -> DataStream {
        DataStream::connect(source, Timeouts::default()).unwrap()
    }

    fn ready(&mut self) {
        while self.data.next(&mut []).unwrap() != Step::Event(Event::Ready) {}
    }

    fn reconnect(&mut self) {
        self.data = Bench::stream(&self.source);
        self.ready();
    }

    /// Takes one acquisition from its header to its end, or until the connection ends.
    fn take(&mut self) -> Taken {
        let mut room = vec![0; 100_000];
        let mut header = None;
        let mut payload = Vec::new();
        let mut certifier: Option<SampleValidator> = None;
        let tally = loop {
            match self.data.next(&mut room) {
                Ok(Step::Event(Event::Start { header: said, .. })) => {
                    certifier = Some(SampleValidator::new(&said));
                    header = Some(said);
                }
                Ok(Step::Event(Event::Frame { bytes })) => {
                    certifier.as_mut().unwrap().frame(bytes);
                }
                Ok(Step::Event(Event::FrameEnd)) => {
                    certifier.as_mut().unwrap().frame_end();
                }
                Ok(Step::Event(Event::End { samples, reason })) => {
                    break certifier.unwrap().end(samples, reason);
                }
                Ok(Step::Event(Event::Ready)) => panic!("ready twice"),
                Ok(Step::Payload(bytes)) => payload.extend_from_slice(&room[..bytes]),
                Ok(Step::Quiet) => {}
                Ok(Step::Closed) => break certifier.unwrap().lost(Ending::ConnectionLost),
                Err(Error::Data(error)) => break certifier.unwrap().lost(Ending::from(&error)),
                Err(error) => panic!("{error}"),
            }
        };
        Taken { header: header.unwrap(), payload, tally }
    }

    fn acquire(&mut self) -> Taken {
        self.control.arm_when_drained(Duration::from_secs(5)).unwrap();
        self.take()
    }
}

fn faults(texts: &[&str]) -> Vec<crate::panda::Fault> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn every_sample_of_several_acquisitions_is_what_it_should_be() {
    let mut bench = Bench::new(plan(), "");
    for number in 1..=3 {
        let taken = bench.acquire();
        assert_eq!((taken.tally.certified, taken.tally.missed), (50_000, 0));
        assert_eq!(taken.tally.ending, Ending::End(EndReason::Ok));
        assert!(taken.tally.agrees());
        assert_eq!(taken.header.sample_bytes, 60);
        taken.check();
        let captured = bench.control.captured_at_end(Duration::from_secs(5)).unwrap();
        assert_eq!(captured, Some(50_000));
        let notices = bench.notices.lock().unwrap();
        assert!(notices.contains(&ServerEvent::Begun { number }), "{notices:?}");
    }
}

#[test]
fn the_columns_are_those_of_the_recordings() {
    let mut bench = Bench::new(plan(), "");
    let columns: Vec<String> = bench.acquire().header.fields.iter().map(|f| f.column()).collect();
    let expected = "PCAP.BITS0.Value COUNTER1.OUT.Min COUNTER1.OUT.Max COUNTER2.OUT.Min \
        COUNTER2.OUT.Max COUNTER3.OUT.Value PCAP.SAMPLES.Value PCAP.TS_START.Value \
        PCAP.TS_CAPTURE.Value COUNTER1.OUT.Mean COUNTER2.OUT.Mean";
    assert_eq!(columns.join(" "), expected);
}

#[test]
fn scaled_samples_have_the_values_of_the_recordings() {
    let mut bench = Bench::new(Plan { samples: Some(1000), ..plan() }, "&process=scaled");
    let taken = bench.acquire();
    assert_eq!((taken.header.sample_bytes, taken.tally.certified), (84, 1000));
    let column = |sample: usize, n: usize| {
        let field = &taken.header.fields[n];
        let at = sample * 84 + field.offset_bytes as usize;
        f64::from_le_bytes(taken.payload[at..at + 8].try_into().unwrap())
    };
    for i in 1..1000 {
        let x = i as f64;
        assert_eq!(column(i, 1), x);
        assert_eq!(column(i, 3), x / 2.0 + 3.0);
        assert_eq!(column(i, 6), 8e-9 * x);
        assert_eq!(column(i, 7), 8e-9 * (i as u64 * 4_294_967_297) as f64);
        assert_eq!(column(i, 9), 4_294_967_297.0);
        assert_eq!(column(i, 10), 2_147_483_651.5);
    }
    assert!(column(0, 9).is_nan());
}

#[test]
fn headers_as_text_and_pieces_of_any_size_change_nothing() {
    for options in ["&xml=false", "&xml=true"] {
        let mut bench = Bench::new(Plan { split: true, samples: Some(9000), ..plan() }, options);
        let taken = bench.acquire();
        assert_eq!(taken.tally.certified, 9000);
        taken.check();
    }
}

#[test]
fn an_overrun_spoils_one_frame_which_is_withheld_and_a_new_connection_goes_on() {
    let samples = Some(1_000_000);
    let faults = faults(&["overrun@40000"]);
    let mut bench = Bench::new(Plan { samples, faults, ..plan() }, "");
    let first = bench.acquire();
    assert_eq!(first.tally.ending, Ending::End(EndReason::DataOverrun));
    assert!(first.tally.withheld > 0 && first.tally.agrees());
    first.check();
    let last = &first.payload[first.certified().len()..];
    let words = last.chunks_exact(60).zip(first.tally.certified..);
    let spoiled = words.filter(|(sample, i)| sample[..4] != (*i as u32).to_le_bytes()).count();
    assert!(spoiled > 0, "the frame was really overwritten");
    bench.reconnect();
    let second = bench.take();
    assert_eq!(second.header.arm_time, first.header.arm_time);
    assert!(second.tally.missed > first.tally.certified);
    assert_eq!(second.tally.missed + second.tally.certified, 1_000_000);
    second.check();
    assert_eq!(bench.control.captured().unwrap(), 1_000_000);
}

#[test]
fn an_acquisition_shorter_than_the_ring_can_be_overrun_too() {
    // 256 MiB hold 4.5 million samples of 60 bytes.
    for process in ["", "&scaled=true"] {
        let (samples, ring_bytes) = (Some(1_000_000), 256 << 20);
        let faults = faults(&["overrun@400000"]);
        let mut bench = Bench::new(Plan { samples, ring_bytes, faults, ..plan() }, process);
        let first = bench.acquire();
        assert_eq!(first.tally.ending, Ending::End(EndReason::DataOverrun));
        bench.reconnect();
        let second = bench.take();
        assert_eq!(second.header.arm_time, first.header.arm_time);
        assert_eq!(second.tally.ending, Ending::End(EndReason::Ok));
        assert!(second.tally.missed > 400_000 && second.tally.missed > first.tally.certified);
        assert_eq!(second.tally.missed + second.tally.certified, 1_000_000);
        if process.is_empty() {
            assert!(first.tally.withheld > 0);
            first.check();
            second.check();
        }
    }
}

#[test]
fn a_fault_that_would_never_happen_is_refused() {
    for fault in ["overrun@1000", "die@5000", "end@1001:Cosmic rays"] {
        let plan = Plan { samples: Some(1000), faults: faults(&[fault]), ..plan() };
        let refused = Server::start(plan, |_| {}).err().expect(fault).to_string();
        assert!(refused.contains(fault) && refused.contains("1000 samples"), "{refused}");
    }
}

#[test]
fn a_reader_that_stalls_for_longer_than_the_ring_lasts_is_overrun() {
    let rate = Some(1e6);
    let faults = faults(&["stall@50000:400"]);
    let samples = Some(1_000_000);
    let plan = Plan { samples_per_second: rate, samples, faults, ..plan() };
    let mut bench = Bench::new(plan, "");
    let taken = bench.acquire();
    assert_eq!(taken.tally.ending, Ending::End(EndReason::DataOverrun));
    taken.check();
}

#[test]
fn an_overrun_of_scaled_samples_spoils_nothing() {
    let samples = Some(1_000_000);
    let faults = faults(&["overrun@40000"]);
    let mut bench = Bench::new(Plan { samples, faults, ..plan() }, "&scaled=true");
    let taken = bench.acquire();
    assert_eq!(taken.tally.ending, Ending::End(EndReason::DataOverrun));
    assert_eq!((taken.tally.withheld, taken.tally.agrees()), (0, true));
    let bits = taken.certified().chunks_exact(84).map(|sample| &sample[..4]);
    assert!(bits.zip(0u32..).all(|(word, i)| word == i.to_le_bytes()));
}

#[test]
fn a_connection_that_dies_keeps_what_is_certified_and_can_be_made_anew() {
    let mut bench = Bench::new(Plan { faults: faults(&["die@30000"]), ..plan() }, "");
    let taken = bench.acquire();
    assert_eq!(taken.tally.ending, Ending::ConnectionLost);
    assert!(taken.tally.certified < 30_000 && taken.tally.cut > 0);
    assert_eq!(taken.tally.certified + taken.tally.withheld, taken.tally.received);
    taken.check();
    bench.reconnect();
    let again = bench.take();
    assert_eq!((again.tally.certified, again.tally.missed), (50_000, 0));
}

#[test]
fn empty_frames_and_stops_within_a_frame_lose_nothing() {
    let faults = faults(&["empty@0", "empty@9000", "stall@20000:250", "empty@49999"]);
    let mut bench = Bench::new(Plan { faults, ..plan() }, "");
    let taken = bench.acquire();
    assert_eq!((taken.tally.certified, taken.tally.agrees()), (50_000, true));
    taken.check();
}

#[test]
fn rubbish_and_lengths_that_lie_are_damage() {
    for (fault, word) in [("rubbish@20000", "neither a frame"), ("length@20000", "whole number")] {
        let mut bench = Bench::new(Plan { faults: faults(&[fault]), ..plan() }, "");
        let taken = bench.acquire();
        let Ending::Damaged(what) = &taken.tally.ending else { panic!("{:?}", taken.tally) };
        assert!(what.contains(word), "{what}");
        taken.check();
    }
}

#[test]
fn a_wrong_count_and_other_reasons_are_told_as_they_are() {
    let mut bench = Bench::new(Plan { faults: faults(&["count"]), ..plan() }, "");
    assert!(!bench.acquire().tally.agrees());
    let with = faults(&["end@20000:DMA data error"]);
    let mut bench = Bench::new(Plan { faults: with, ..plan() }, "");
    let taken = bench.acquire();
    assert_eq!(taken.tally.ending, Ending::End(EndReason::DmaDataError));
    assert_eq!(taken.tally.received, 20_000);
    assert!(taken.tally.withheld > 0);
    assert_eq!(bench.control.completion().unwrap(), "DMA data error");
}

#[test]
fn disarming_ends_an_endless_acquisition() {
    let endless = Plan { samples: None, samples_per_second: Some(1e6), ..plan() };
    let mut bench = Bench::new(endless, "");
    bench.control.arm().unwrap();
    let refused = bench.control.arm().unwrap_err().to_string();
    assert!(refused.contains("already in progress"), "{refused}");
    assert!(bench.control.status().unwrap().busy);
    while bench.control.captured().unwrap() == 0 {}
    bench.control.disarm().unwrap();
    let taken = bench.take();
    assert_eq!(taken.tally.ending, Ending::End(EndReason::Disarmed));
    assert_eq!(bench.control.captured().unwrap(), taken.tally.certified);
    taken.check();
}

#[test]
fn what_is_captured_can_be_chosen() {
    let mut bench = Bench::new(plan(), "");
    let control = &mut bench.control;
    assert_eq!(control.identify().unwrap().version, Some((4, 1)));
    assert_eq!(control.clock_hz().unwrap(), Some(125e6));
    assert_eq!(control.captured_fields().unwrap().len(), 7);
    assert!(control.capturable().unwrap().contains(&"INENC4.VAL".to_owned()));
    assert!(control.capture_options().unwrap().contains(&"StdDev".to_owned()));
    let captured = |field: &str, options: &[&str]| Captured {
        field: field.to_owned(),
        options: options.iter().map(|&option| option.to_owned()).collect(),
    };
    let wish = [captured("COUNTER1.OUT", &["Value", "StdDev"])];
    control.set_capture(&wish).unwrap();
    assert_eq!(control.captured_fields().unwrap(), wish);
    let header = bench.acquire().header;
    let columns: Vec<String> = header.fields.iter().map(|field| field.column()).collect();
    let expected =
        ["PCAP.SAMPLES.Value", "COUNTER1.OUT.Value", "COUNTER1.OUT.Mean", "COUNTER1.OUT.StdDev"];
    assert_eq!(columns, expected);
    let nothing = bench.control.set_capture(&[captured("COUNTER1.OUT", &["Everything"])]);
    assert!(nothing.unwrap_err().to_string().contains("Invalid capture option"));
    let refused = bench.control.arm().unwrap_err().to_string();
    assert!(refused.contains("Nothing configured"), "{refused}");
}

#[test]
fn the_settings_of_a_panda_are_kept() {
    let mut bench = Bench::new(plan(), "");
    let rows = ["1", "2", "3", "4"].map(str::to_owned).to_vec();
    let table = lines::Request::Table("SEQ1.TABLE".to_owned(), rows);
    assert_eq!(bench.control.ask(&table).unwrap(), lines::Answer::Ok);
    bench.control.set("PCAP.TRIG", "PULSE1.OUT").unwrap();
    let settings = bench.control.settings().unwrap();
    assert!(settings.config.contains(&"PCAP.TRIG=PULSE1.OUT".to_owned()));
    assert!(settings.attributes.contains(&"COUNTER2.OUT.UNITS=mm".to_owned()));
    assert_eq!(settings.bits[0].1.len(), 32);
    let expected = ("SEQ1.TABLE".to_owned(), vec!["AQAAAAIAAAADAAAABAAAAA==".to_owned()]);
    assert_eq!(settings.tables[0], expected);
    assert!(settings.identity.starts_with("PandA SW: 4.1"));
}

#[test]
fn ipv6_and_nobody_there_are_told_apart() {
    let any = "[::1]:0".parse().unwrap();
    let mut bench = Bench::new(Plan { control: any, data: any, ..plan() }, "");
    assert_eq!(bench.acquire().tally.certified, 50_000);
    let source = bench.source.clone();
    drop(bench.server);
    let error = ControlPort::connect(&source, Timeouts::default()).unwrap_err();
    assert!(error.to_string().contains("::1") && error.hint().is_some(), "{error}");
}

#[test]
fn a_dead_panda_is_found_out_by_the_kernel_within_half_a_minute() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let socket = fullbore_panda::connect("127.0.0.1", port, Duration::from_secs(5)).unwrap();
    let socket = socket2::SockRef::from(&socket);
    assert!(socket.keepalive().unwrap());
    let looks = socket.tcp_keepalive_retries().unwrap();
    let between = socket.tcp_keepalive_interval().unwrap();
    let all = socket.tcp_keepalive_time().unwrap() + between * looks;
    assert!(all <= Duration::from_secs(30), "{all:?}");
}

#[test]
fn a_dump_is_served_byte_for_byte() {
    let dump: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let bench = Bench::new(Plan { dump: Some(dump.clone()), ..plan() }, "");
    bench.data.close();
    let mut plain = TcpStream::connect(bench.server.data()).unwrap();
    plain.write_all(b"XML FRAMED RAW\n").unwrap();
    let mut got = vec![0; 100_003];
    plain.read_exact(&mut got).unwrap();
    assert_eq!(got, [b"OK\n".as_slice(), &dump].concat());
}

#[test]
fn the_other_forms_of_data_say_the_same() {
    let mut bench = Bench::new(Plan { samples: Some(3), ..plan() }, "");
    let ask = |options: &str| {
        let mut plain = TcpStream::connect(bench.server.data()).unwrap();
        plain.write_all(format!("{options} ONE_SHOT\n").as_bytes()).unwrap();
        let mut ok = [0; 3];
        plain.read_exact(&mut ok).unwrap();
        plain
    };
    let mut plain = [ask("ASCII RAW"), ask("ASCII SCALED"), ask("BASE64 RAW"), ask("UNFRAMED RAW")];
    bench.control.arm().unwrap();
    let text = |socket: &mut TcpStream| {
        let mut bytes = Vec::new();
        socket.read_to_end(&mut bytes).unwrap();
        let (head, body) = bytes.split_at(bytes.windows(2).position(|two| two == b"\n\n").unwrap());
        (
            String::from_utf8(head.to_vec()).unwrap(),
            String::from_utf8_lossy(&body[2..]).into_owned(),
        )
    };
    let (head, raw) = text(&mut plain[0]);
    assert!(head.contains("format: ASCII"));
    assert_eq!(raw.lines().nth(2).unwrap(), " 0x00000002".repeat(15));
    assert!(raw.ends_with("END 3 Ok\n"), "{raw}");
    let (_, scaled) = text(&mut plain[1]);
    assert!(scaled.lines().nth(1).unwrap().starts_with(" 1 1 1 3.5 3.5 1 8e-09 34.35973838"));
    let (_, base64) = text(&mut plain[2]);
    assert!(base64.starts_with(" AAAA") && base64.contains("\0\n"));
    let (_, unframed) = text(&mut plain[3]);
    assert_eq!(unframed.len(), 180 + "END 3 Ok\n".len());
}

#[test]
fn options_that_no_server_takes_are_refused() {
    let bench = Bench::new(plan(), "");
    let mut plain = TcpStream::connect(bench.server.data()).unwrap();
    plain.write_all(b"XML UNSCALED\n").unwrap();
    let mut said = String::new();
    plain.read_to_string(&mut said).unwrap();
    assert_eq!(said, "ERR Invalid data capture option\n");
}
