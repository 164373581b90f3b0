//! TCP between the stack inside the guest and Linux sockets in the lab.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use guest_pages::{Mode, STREAM_PORT, report, stream_byte};
use lab::{End, GuestWire, TapEnd};
use sha2::{Digest, Sha256};
use vmm::{GuestTask, Snapshot, Switches};

use crate::guest::{self, Opened};

/// A lab, its back end, and the host's side of it.
enum Lab {
    Tap(TapEnd),
    Ring { wire: GuestWire, xdp: bool },
}

impl Lab {
    fn new(switches: &Switches) -> Self {
        if !switches.shared_ring {
            return Lab::Tap(TapEnd::new().expect("the test runs as root"));
        }
        let wire = GuestWire::new().expect("the test runs as root");
        Lab::Ring { wire, xdp: switches.xdp_ring }
    }

    fn open(&self) -> Opened {
        match self {
            Lab::Tap(lab) => crate::tap::tap(lab),
            Lab::Ring { wire, xdp } => crate::tap::ring(wire, *xdp),
        }
    }

    fn host(&self) -> &End {
        match self {
            Lab::Tap(lab) => &lab.host,
            Lab::Ring { wire, .. } => &wire.host,
        }
    }

    fn guest_ip(&self) -> Ipv4Addr {
        match self {
            Lab::Tap(lab) => lab.guest_ip,
            Lab::Ring { wire, .. } => wire.guest_ip,
        }
    }

    fn task(&self, mode: Mode, size_bytes: u64, count: u64) -> GuestTask {
        GuestTask {
            mode,
            ip: self.guest_ip(),
            peer_ip: self.host().ip,
            tx_ring_log2: 7,
            rx_ring_log2: 7,
            digest: true,
            ..GuestTask::send(size_bytes, count)
        }
    }
}

const READ_TIMEOUT: Option<Duration> = Some(Duration::from_secs(30));

/// SHA-256 of all that comes until the other end closes, and how much it was.
fn digest(stream: &mut TcpStream) -> ([u8; 32], u64) {
    let (mut digest, mut bytes, mut chunk) = (Sha256::new(), 0, vec![0; 65_536]);
    loop {
        let len = match stream.read(&mut chunk) {
            // The tests were stopped and continued.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.unwrap(),
        };
        if len == 0 {
            return (digest.finalize().into(), bytes);
        }
        digest.update(&chunk[..len]);
        bytes += len as u64;
    }
}

fn guest_digest(measured: &Snapshot) -> [u8; 32] {
    let words = &measured.report[report::DIGEST..report::DIGEST + 4];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.try_into().unwrap()
}

/// One stream from the guest (or to it); whether there is a KVM to run it.
fn stream(mode: Mode, switches: Switches, size_bytes: u64, count: u64) -> bool {
    let lab = Lab::new(&switches);
    let host = lab.host();
    let listener = host.run(|| TcpListener::bind((host.ip, STREAM_PORT))).unwrap().unwrap();
    let task = lab.task(mode, size_bytes, count);
    let total = size_bytes * count;
    std::thread::scope(|scope| {
        let end = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(READ_TIMEOUT).unwrap();
            if mode == Mode::TcpSend {
                return digest(&mut stream);
            }
            let chunk: Vec<u8> = (0..size_bytes as usize).map(|i| stream_byte(i + 5)).collect();
            let mut digest = Sha256::new();
            for _ in 0..count {
                stream.write_all(&chunk).unwrap();
                digest.update(&chunk);
            }
            stream.shutdown(Shutdown::Write).unwrap();
            (digest.finalize().into(), total)
        });
        let Some(outcome) = guest::run(task, switches, || lab.open()) else {
            // Ends accept().
            host.run(|| TcpStream::connect((host.ip, STREAM_PORT))).unwrap().ok();
            end.join().ok();
            return false;
        };
        let measured = outcome.measured.expect("the guest marks its measured part");
        let (digest, bytes) = end.join().unwrap();
        assert_eq!((bytes, measured.report[report::STREAM_BYTES]), (total, total));
        assert_eq!(guest_digest(&measured), digest, "{mode:?} {switches:?}");
        // An interrupt may be late: a thread was not scheduled between the frame and the line.
        assert_eq!(measured.report[report::LOST_WAKE_UPS], 0, "{mode:?} {switches:?}");
        true
    })
}

#[test]
fn stream_from_the_guest_has_the_digest_that_the_guest_says() {
    for (switches, count) in [(Switches::default(), 4), (Switches::SOURCE, 16), (guest::LANCE, 64)]
    {
        for size_bytes in [512, 65_536] {
            if !stream(Mode::TcpSend, switches, size_bytes, count) {
                return;
            }
        }
    }
}

#[test]
fn stream_to_the_guest_has_the_digest_that_the_host_says() {
    for (switches, count) in [(Switches::default(), 4), (Switches::SOURCE, 16), (guest::LANCE, 64)]
    {
        if !stream(Mode::TcpReceive, switches, 65_536, count) {
            return;
        }
    }
}

fn connect(ip: Ipv4Addr, port: u16) -> TcpStream {
    let stream = TcpStream::connect((ip, port)).unwrap();
    stream.set_read_timeout(READ_TIMEOUT).unwrap();
    stream
}

#[test]
fn services_answer_linux_sockets_over_every_back_end() {
    let tap = Switches { tx_int_mask: true, ..Switches::default() };
    for switches in [tap, Switches::SOURCE, guest::LANCE, Switches::ALL] {
        let lab = Lab::new(&switches);
        let task = lab.task(Mode::Serve, 1460, 0);
        let Some(running) = guest::start(task, switches, || lab.open()) else { return };
        let ip = lab.guest_ip();
        lab.host()
            .run(|| {
                // Two at a time, each with its own bytes.
                let mut echoes = [connect(ip, 7), connect(ip, 7)];
                for (n, echo) in echoes.iter_mut().enumerate() {
                    let sent: Vec<u8> = (0..20_000).map(|i| stream_byte(i + n)).collect();
                    echo.write_all(&sent).unwrap();
                    echo.shutdown(Shutdown::Write).unwrap();
                    let mut answer = Vec::new();
                    echo.read_to_end(&mut answer).unwrap();
                    assert!(answer == sent, "{} of {} bytes", answer.len(), sent.len());
                }
                let mut discard = connect(ip, 9);
                discard.write_all(&[7; 50_000]).unwrap();
                discard.shutdown(Shutdown::Write).unwrap();
                assert_eq!(discard.read(&mut [0; 1]).unwrap(), 0);
                let mut lines = vec![0; 74 * 200];
                let mut chargen = connect(ip, 19);
                chargen.read_exact(&mut lines).unwrap();
                let first = lines[0] - b' ';
                for (n, line) in lines.chunks_exact(74).enumerate() {
                    assert_eq!(
                        line[..2],
                        [0, 1].map(|i| b' ' + ((first as usize + n + i) % 95) as u8)
                    );
                    assert_eq!(line[72..], *b"\r\n");
                }
                drop(chargen);
            })
            .unwrap();
        crate::tap::ask(ip, &lab.host().netns);
        running.stop().expect("it stops");
    }
}
