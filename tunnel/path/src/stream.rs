//! Load `tcp`: a stream between sockets, into the tunnel by the forwarder and out of it by the kernel's
//! own VXLAN device at the far end.
//!
//! Every offload is at its default, so super-frames with unfinished checksums cross the lab. A second
//! stream, outside of the measured time, is compared by its SHA-256.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use host::cpu::CpuClock;
use host::net::{self, Mac, VxlanSpec, snmp_counter, snmp_table};
use lab::{End, Meter, Run, RunCause, Signals, Triple, cost_of, settle};
use model::{Arm, ArmKind, Cost, Load, Measurement, PathError, Random, Session};
use sha2::{Digest, Sha256};
use sys::clock::monotonic_ns;
use sys::rusage::ThreadUsage;

use crate::accounting;
use crate::kernel::{self, KernelForwarder, KernelSpec};
use crate::session::{Places, thread_places};
use crate::sink::{SILENCE_GRACE, SILENCE_TIMEOUT};
use crate::switches::{Switch, tuning, worker_count};
use crate::topology::{self, Encapsulation, FORWARDER_IP, Offloads, PREFIX, SINK_IP};
use crate::user::{self, Front, UserSpec};

/// The inner network: the source's interface, and the VXLAN device at the far end.
const SOURCE_IP: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 1);
const DEVICE_IP: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 2);
const DEVICE_MAC: Mac = [2, b'w', b'p', 0, 0, 9];
const INNER_MTU: u32 = 1500;
const PORT: u16 = 7001;
/// Time limit of a connection, and of a socket that makes no progress.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(10);
const RECEIVED: &str = "received_byte_count";
const CHUNK_BYTES: usize = 128 << 10;
/// Bytes that the rate leaves out, in which TCP opens its window.
const START_BYTES: u64 = 1 << 20;
/// Length of a measured stream at least: a source that loses its CPU for the whole trial sends them after it.
const STREAM_BYTES_MIN: u64 = 16 << 20;
/// Length of the stream that is compared.
const COMPARED_BYTES: u64 = 4 << 20;

/// The lab and the state kept between trials.
pub(crate) struct StreamSession {
    lab: Triple,
    trial: Duration,
    cpus: Vec<usize>,
    clock: CpuClock,
}

impl StreamSession {
    pub(crate) fn open(load: &Load) -> Result<Self, PathError> {
        if load.rate_pps > 0 {
            return Err(PathError::Invalid {
                what: format!("load {} at {} frames a second", load.kind, load.rate_pps),
                remedy: "omit --rate: TCP finds its own".into(),
            });
        }
        let lab = topology::build(Offloads::Default)?;
        end_tunnel(&lab)?;
        let cpus = sys::affinity::allowed_cpus().map_err(PathError::part)?;
        let clock = CpuClock::open().map_err(PathError::part)?;
        Ok(StreamSession { lab, trial: load.trial, cpus, clock })
    }

    /// Measures one stream, and compares another.
    fn measure(&self, places: &Places) -> Result<Measurement, PathError> {
        let before = Counts::now(&self.lab)?;
        let meter = Meter::start(&self.clock, &[&places.source[..], &places.others].concat())?;
        let (sent, received) = self.connect(places, |socket| send(socket, self.trial), receive)?;
        let used = meter.stop()?;
        let measured = Counts::now(&self.lab)?;
        let seed = monotonic_ns();
        self.connect(places, |socket| send_compared(socket, seed), |socket| answer_digest(socket))?;
        let error_count =
            Counts::now(&self.lab)?.checksum_error_count - before.checksum_error_count;
        if error_count > 0 {
            let what = format!(
                "{error_count} packets arrived with a wrong checksum (InCsumErrors of both ends)"
            );
            return Err(PathError::at("forwarder", what));
        }
        let mut m = Measurement { wall_ns: received.interval_ns, ..Measurement::default() };
        m.costs.extend([("source".into(), sent.cost), ("sink".into(), received.cost)]);
        used.account(&mut m);
        let goodput_bps = received.interval_byte_count as f64 * 8e9 / received.interval_ns as f64;
        m.figures.insert("goodput_bps".into(), goodput_bps);
        for (name, count) in [
            ("sent_byte_count", sent.byte_count),
            (RECEIVED, received.byte_count),
            ("checksum_error_count", error_count),
            ("retransmitted_count", measured.retransmitted_count - before.retransmitted_count),
            ("port_frame_count", measured.frame_count - before.frame_count),
            ("port_byte_count", measured.byte_count - before.byte_count),
        ] {
            m.counters.insert(name.into(), count);
        }
        Ok(m)
    }

    /// Connects a socket at the near end to one behind the tunnel, each on a thread of its own.
    fn connect<S: Send, R: Send>(
        &self,
        places: &Places,
        send: impl FnOnce(&TcpStream) -> Result<S, RunCause> + Send,
        receive: impl FnOnce(&TcpStream) -> Result<R, RunCause> + Send,
    ) -> Result<(S, R), PathError> {
        let received_count = &AtomicU64::new(0);
        let (grace, grace_max) = (SILENCE_GRACE, SILENCE_TIMEOUT);
        lab::run(
            &Run { receiver: "sink", sender: "source", received_count, grace, grace_max },
            |signals| {
                settle(&self.lab.far, &places.others)?;
                let listener = TcpListener::bind((DEVICE_IP, PORT))?;
                signals.ready();
                receive(&accept(&listener, signals)?)
            },
            || {
                settle(&self.lab.near, &places.source)?;
                let socket = TcpStream::connect_timeout(&(DEVICE_IP, PORT).into(), SOCKET_TIMEOUT)?;
                // The sink reads to the end of the stream, whenever that is.
                Ok((send(patient(&socket)?)?, 0))
            },
        )
    }
}

impl StreamSession {
    fn kernel(&self, arm: &Arm, spec: &KernelSpec) -> Result<Measurement, PathError> {
        let places = thread_places(&self.cpus, 0);
        let steer_to = arm.has(Switch::Rps).then_some(places.others.as_slice());
        let forwarder = KernelForwarder::new(&self.lab, spec, steer_to)?;
        let steered_before = self.clock.steering_interrupts();
        let mut m = self.measure(&places)?;
        accounting::enter_kernel(&mut m, Encapsulation::Vxlan, steered_before, &self.clock);
        drop(forwarder);
        Ok(m)
    }

    fn user(&self, arm: &Arm) -> Result<Measurement, PathError> {
        let places = thread_places(&self.cpus, worker_count(arm, self.cpus.len()));
        let spec =
            UserSpec::new(tuning(arm), Encapsulation::Vxlan, places.workers.clone(), Front::Tcx);
        let (mut m, report) = user::run(&self.lab, &spec, || self.measure(&places))?;
        accounting::enter_user(&mut m, report);
        Ok(m)
    }
}

impl Session for StreamSession {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let mut m = match arm.kind {
            ArmKind::Peer => self.kernel(arm, &KernelSpec::BEST),
            _ if arm.has(Switch::Bypass) => self.user(arm),
            _ => self.kernel(arm, &KernelSpec::new(arm)),
        }?;
        enter_cost(&mut m);
        m.not_effective = accounting::not_effective(arm, &m);
        Ok(m)
    }

    fn nic(&self) -> String {
        format!(
            "two veth pairs, 1 queue, MTU {}, every offload at its default; sink: a socket behind the \
             kernel's VXLAN device, inner MTU {INNER_MTU}",
            topology::UNDERLAY_MTU
        )
    }
}

/// Ends the tunnel in a VXLAN device of the kernel at the far end. Permanent neighbour entries keep ARP off
/// the wires.
fn end_tunnel(lab: &Triple) -> Result<(), PathError> {
    let (near, far) = (&lab.near, &lab.far);
    let ended = far.run(|| {
        net::add_address(far.ifindex, SINK_IP, PREFIX)?;
        net::set_neighbour(far.ifindex, FORWARDER_IP, lab.middle.far_if.mac)?;
        let device = kernel::vxlan(SINK_IP, FORWARDER_IP, far);
        let device = VxlanSpec { mac: Some(DEVICE_MAC), mtu_bytes: INNER_MTU, ..device };
        let ifindex = net::create_vxlan(&device)?;
        net::set_up(ifindex, true)?;
        net::add_address(ifindex, DEVICE_IP, PREFIX)?;
        net::set_neighbour(ifindex, SOURCE_IP, near.mac)
    });
    ended.map_err(PathError::part)?.map_err(PathError::part)?;
    let begun = near.run(|| {
        net::add_address(near.ifindex, SOURCE_IP, PREFIX)?;
        net::set_neighbour(near.ifindex, DEVICE_IP, DEVICE_MAC)
    });
    begun.map_err(PathError::part)?.map_err(PathError::part)
}

/// Counters of both ends' stacks and of the forwarder's port.
#[derive(Debug, Clone, Copy)]
struct Counts {
    /// TCP segments and UDP datagrams with a wrong checksum, at both ends.
    checksum_error_count: u64,
    /// Segments that the source sent again.
    retransmitted_count: u64,
    /// Frames and bytes from the source; a super-frame is one.
    frame_count: u64,
    byte_count: u64,
}

impl Counts {
    fn now(lab: &Triple) -> Result<Counts, PathError> {
        let mut checksum_error_count = 0;
        for end in [&lab.near, &lab.far] {
            for protocol in ["Tcp", "Udp"] {
                checksum_error_count += stack_count(end, protocol, "InCsumErrors")?;
            }
        }
        let port = &lab.middle.near_if;
        Ok(Counts {
            checksum_error_count,
            retransmitted_count: stack_count(&lab.near, "Tcp", "RetransSegs")?,
            frame_count: statistic(port, "rx_packets")?,
            byte_count: statistic(port, "rx_bytes")?,
        })
    }
}

/// Counter of a protocol in an end's stack.
fn stack_count(end: &End, protocol: &str, name: &str) -> Result<u64, PathError> {
    let table = end.run(snmp_table).map_err(PathError::part)?.map_err(PathError::part)?;
    snmp_counter(&table, protocol, name)
        .ok_or_else(|| PathError::at("source", format!("no counter {name} of {protocol}")))
}

/// Counter of an interface.
fn statistic(end: &End, name: &str) -> Result<u64, PathError> {
    let path = format!("class/net/{}/statistics/{name}", end.ifname);
    let text = end.sysfs().map_err(PathError::part)?.read(&path).map_err(PathError::part)?;
    let count = text.trim().parse();
    count.map_err(|_| PathError::at(path, format!("{text:?} is not a valid number")))
}

/// Report of the source.
struct Sent {
    byte_count: u64,
    cost: Cost,
}

/// Report of the sink.
#[derive(Debug, Clone, Copy, Default)]
struct StreamReceived {
    byte_count: u64,
    /// From the first arrival after the start to the last, and the bytes in it.
    interval_ns: u64,
    interval_byte_count: u64,
    cost: Cost,
}

/// Enters the CPU time of all costs over the bytes that arrived.
fn enter_cost(m: &mut Measurement) {
    let byte_count = m.counters.get(RECEIVED).copied().unwrap_or(0);
    if byte_count > 0 {
        m.figures.insert("cpu_ns_per_byte".into(), m.cpu_ns() as f64 / byte_count as f64);
    }
}

fn accept(listener: &TcpListener, signals: &Signals<'_>) -> Result<TcpStream, RunCause> {
    listener.set_nonblocking(true)?;
    loop {
        let is_last = signals.is_stopped();
        match listener.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(false)?;
                patient(&socket)?;
                return Ok(socket);
            }
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error.into()),
            Err(_) if is_last => return Err("no TCP connection crosses the forwarder".into()),
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Limits the time in which the socket may make no progress.
fn patient(socket: &TcpStream) -> io::Result<&TcpStream> {
    socket.set_read_timeout(Some(SOCKET_TIMEOUT))?;
    socket.set_write_timeout(Some(SOCKET_TIMEOUT))?;
    Ok(socket)
}

/// Sends for `duration`, or longer, and waits until the sink has closed: sending ends when everything has arrived.
fn send(mut socket: &TcpStream, duration: Duration) -> Result<Sent, RunCause> {
    let chunk = vec![0x57; CHUNK_BYTES];
    let (begun, used) = (Instant::now(), ThreadUsage::counted());
    let mut byte_count = 0;
    while begun.elapsed() < duration || byte_count < STREAM_BYTES_MIN {
        socket.write_all(&chunk)?;
        byte_count += chunk.len() as u64;
    }
    socket.shutdown(Shutdown::Write)?;
    io::copy(&mut socket, &mut io::sink())?;
    Ok(Sent { byte_count, cost: cost_of(&ThreadUsage::counted().since(&used)) })
}

/// Receives until the end of the stream.
fn receive(mut socket: &TcpStream) -> Result<StreamReceived, RunCause> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let used = ThreadUsage::counted();
    let mut first = None;
    let mut last = (monotonic_ns(), 0);
    loop {
        let len = match socket.read(&mut chunk) {
            Ok(0) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        last = (monotonic_ns(), last.1 + len as u64);
        if first.is_none() && last.1 >= START_BYTES {
            first = Some(last);
        }
    }
    let (first_ns, first_count) = first.unwrap_or(last);
    if last.0 == first_ns {
        return Err("the stream stopped at its start".into());
    }
    Ok(StreamReceived {
        byte_count: last.1,
        interval_ns: last.0 - first_ns,
        interval_byte_count: last.1 - first_count,
        cost: cost_of(&ThreadUsage::counted().since(&used)),
    })
}

/// Sends random bytes in pieces of random length, and compares the digest that comes back.
fn send_compared(mut socket: impl Read + Write, seed: u64) -> Result<(), RunCause> {
    let mut random = Random::new(seed, 0);
    let mut piece = vec![0; CHUNK_BYTES];
    let mut digest = Sha256::new();
    let mut left = COMPARED_BYTES;
    while left > 0 {
        let len = left.min(1 + random.below(CHUNK_BYTES as u64));
        let piece = &mut piece[..len as usize];
        for word in piece.chunks_mut(size_of::<u64>()) {
            word.copy_from_slice(&random.below(u64::MAX).to_le_bytes()[..word.len()]);
        }
        socket.write_all(piece)?;
        digest.update(piece);
        left -= len;
    }
    let mut answer = [0; 32];
    socket.read_exact(&mut answer)?;
    if answer != *digest.finalize() {
        return Err("the stream did not arrive as it was sent: its SHA-256 differs".into());
    }
    Ok(())
}

/// Receives such a stream and returns its digest to the source.
fn answer_digest(socket: impl Read + Write) -> Result<(), RunCause> {
    let mut stream = socket.take(COMPARED_BYTES);
    let mut digest = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(len) => digest.update(&chunk[..len]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(stream.into_inner().write_all(&digest.finalize())?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Changes one bit of the stream.
    struct Flip<'a>(&'a UnixStream, bool);

    impl Read for Flip<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let len = self.0.read(buffer)?;
            buffer[0] ^= u8::from(std::mem::take(&mut self.1));
            Ok(len)
        }
    }

    impl Write for Flip<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.flush()
        }
    }

    #[test]
    fn stream_that_changed_on_its_way_is_an_error() {
        for is_flipped in [false, true] {
            let (source, sink) = UnixStream::pair().expect("a pair");
            let sent = thread::scope(|scope| {
                scope.spawn(|| answer_digest(Flip(&sink, is_flipped)).expect("it answers"));
                send_compared(&source, 7)
            });
            assert_eq!(sent.is_err(), is_flipped, "{sent:?}");
        }
    }

    #[test]
    fn cpu_time_of_every_end_is_over_the_bytes_that_arrived() {
        let mut m = Measurement::default();
        enter_cost(&mut m);
        assert!(m.figures.is_empty());
        for end in ["source", "worker 0"] {
            m.costs.insert(end.into(), Cost { system_ns: 1_500, ..Cost::default() });
        }
        m.counters.insert(RECEIVED.into(), 2_000);
        enter_cost(&mut m);
        assert_eq!(m.figures["cpu_ns_per_byte"], 1.5);
    }
}
