//! Requests of one TCP service, timed in the kernel (bpf/service.bpf.c).

use std::io::{self, Read};

use libbpf_rs::{Iter, Link, MapHandle};

use super::error::BpfError;
use super::object::{
    Loaded, Opened, embedded, map_error, per_cpu, read_single, shared_types, write_single,
};
use super::tracing::{EmptyRuns, RunTime, Tracepoints};
use crate::capability::Capability;

mod types {
    use super::shared_types;

    shared_types!("service");
}

/// Most ports that are followed.
pub const SERVICE_PORTS_MAX: usize = 16;
/// Bins of a histogram: 64 to a power of two, at most 1.6 % wide.
pub const SERVICE_BINS: usize = 2048;
/// Longest congestion control's name, bytes. Source: net/tcp.h, TCP_CA_NAME_MAX, with its end.
const CONGESTION_BYTES_MAX: usize = 15;

/// The tracepoint of each program.
const TRACEPOINTS: [(&str, &str); 4] = [
    ("segment", "tcp_probe"),
    ("resent", "tcp_retransmit_skb"),
    ("sent", "sock_send_length"),
    ("changed", "inet_sock_set_state"),
];

/// Tracepoints without which no request is timed.
const REQUIRED: [&str; 3] = ["tcp_probe", "sock_send_length", "inet_sock_set_state"];

/// A span of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceSpan {
    /// From its arrival to the first send of its answer.
    FirstSend,
    /// From its arrival to the acknowledgement of all of its answer.
    LastAcknowledgement,
}

/// Connections whose requests are counted in [`ServiceTotals::wanted_count`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceWanted {
    /// None.
    Nothing,
    /// Those with this congestion control.
    CongestionControl(String),
    /// Those that were opened after this time of CLOCK_MONOTONIC.
    OpenedAfter(u64),
}

/// Counts since the programs were attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServiceTotals {
    /// Requests with an answer, which are timed.
    pub answered_count: u64,
    /// Those that were slower than the limit.
    pub slow_count: u64,
    /// Those on the wanted connections.
    pub wanted_count: u64,
    /// Requests whose connection the service closed without an answer, or the kernel gave up.
    pub refused_count: u64,
    /// Requests whose client closed before the answer.
    pub abandoned_count: u64,
    /// Requests answered after more than a minute, which are not timed.
    pub stale_count: u64,
    /// Answers that were acknowledged whole.
    pub acknowledged_count: u64,
    /// Answers that were followed by the next before that.
    pub overtaken_count: u64,
    /// Sends without a request.
    pub unasked_count: u64,
    /// Segments that were sent again.
    pub resent_count: u64,
    /// Segments of connections that could not be followed for want of memory.
    pub untracked_count: u64,
}

impl ServiceTotals {
    /// Those since `earlier`.
    pub fn since(&self, earlier: &ServiceTotals) -> ServiceTotals {
        let mut grown = *self;
        for (to, before) in grown.counts_mut().into_iter().zip(earlier.counts()) {
            *to = to.saturating_sub(before);
        }
        grown
    }

    fn counts(mut self) -> [u64; 11] {
        self.counts_mut().map(|count| *count)
    }

    /// In the order of `struct service_totals`.
    fn counts_mut(&mut self) -> [&mut u64; 11] {
        [
            &mut self.answered_count,
            &mut self.slow_count,
            &mut self.wanted_count,
            &mut self.refused_count,
            &mut self.abandoned_count,
            &mut self.stale_count,
            &mut self.acknowledged_count,
            &mut self.overtaken_count,
            &mut self.unasked_count,
            &mut self.resent_count,
            &mut self.untracked_count,
        ]
    }
}

/// Cumulative histogram of one span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceTimes {
    /// Wraps, as the bins do.
    sum_ns: u64,
    bins: Vec<u32>,
}

impl Default for ServiceTimes {
    fn default() -> Self {
        ServiceTimes { sum_ns: 0, bins: vec![0; SERVICE_BINS] }
    }
}

impl ServiceTimes {
    /// Counts by bin since `earlier`. A time that was taken back after it counts there, so a bin may lose one; it is 0 then.
    pub fn bins_since(&self, earlier: &ServiceTimes) -> Vec<u32> {
        let pairs = self.bins.iter().zip(&earlier.bins);
        pairs
            .map(|(now, before)| u32::try_from(now.wrapping_sub(*before) as i32).unwrap_or(0))
            .collect()
    }

    /// Sum of the times since `earlier`.
    pub fn sum_ns_since(&self, earlier: &ServiceTimes) -> u64 {
        u64::try_from(self.sum_ns.wrapping_sub(earlier.sum_ns) as i64).unwrap_or(0)
    }
}

/// Requests that wait at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServiceWaiting {
    /// Longest wait of a connection, for an answer or for an acknowledgement; at most a minute.
    pub oldest_ns: u64,
    /// Connections that have waited for more than 0.5 s.
    pub late_count: u32,
    /// Connections that wait, or had a request in the last 10 s.
    pub active_count: u32,
    /// Connections with a request that is not answered.
    pub open_count: u32,
    /// Connections with an answer that is not acknowledged.
    pub unacknowledged_count: u32,
}

/// Lowest time of a bin, nanoseconds.
pub fn service_bin_ns(bin: usize) -> u64 {
    match bin {
        0..128 => bin as u64,
        _ => (64 + bin as u64 % 64) << (bin / 64 - 1),
    }
}

/// Programs that time the requests of a service until they are dropped.
#[derive(Debug)]
pub struct ServiceProbe {
    // Before the object, so that they are detached first.
    links: Vec<Link>,
    waiting: Result<Link, String>,
    tracepoints: Tracepoints,
    wanted: types::service_wanted,
    data: MapHandle,
    bss: MapHandle,
    totals: MapHandle,
    times: MapHandle,
    loaded: Loaded,
}

impl ServiceProbe {
    /// Attaches the programs.
    ///
    /// - `netns`: inode number of the service's network namespace. `ports`: local ones, at most [`SERVICE_PORTS_MAX`].
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF and CAP_PERFMON; [`BpfError::Invalid`] for too many ports;
    /// [`BpfError::Unsupported`] on a kernel without the tracepoints; [`BpfError::Load`] otherwise.
    pub fn attach(netns: u32, ports: &[u16]) -> Result<ServiceProbe, BpfError> {
        if ports.len() > SERVICE_PORTS_MAX {
            let what = format!("{} ports; there can be {SERVICE_PORTS_MAX}", ports.len());
            return Err(BpfError::Invalid { what });
        }
        let mut config = types::config {
            ports_count: ports.len() as u32,
            pad: 0,
            ports: [types::service_port { netns: 0, port: 0 }; SERVICE_PORTS_MAX],
        };
        for (to, port) in config.ports.iter_mut().zip(ports) {
            *to = types::service_port { netns, port: (*port).into() };
        }
        let tracepoints = Tracepoints::of_this_kernel(&TRACEPOINTS);
        let absent = tracepoints.missing();
        if let Some(absent) = absent.iter().find(|one| REQUIRED.contains(&one.name)) {
            let tracepoint = absent.to_string();
            return Err(BpfError::Unsupported { what: "requests of one service", tracepoint });
        }
        let loaded = Opened::open("service", embedded!("service"))?
            .needs(&[Capability::Bpf, Capability::Perfmon])
            .config(&config)?
            .without(&tracepoints.absent_programs())
            .load()?;
        let wanted = types::service_wanted {
            slow_limit_ns: 0,
            opened_after_ns: 0,
            kind: 0,
            pad: 0,
            congestion_control: [0; 16],
        };
        let waiting = loaded.program("waiting")?.attach();
        let (links, refused) = tracepoints.attach(&loaded)?;
        if let Some(refused) = refused.iter().find(|one| REQUIRED.contains(&one.name)) {
            let tracepoint = refused.to_string();
            return Err(BpfError::Unsupported { what: "requests of one service", tracepoint });
        }
        Ok(ServiceProbe {
            links,
            waiting: waiting.map_err(|why| why.to_string()),
            tracepoints,
            wanted,
            data: loaded.handle(".data")?,
            bss: loaded.handle(".bss")?,
            totals: loaded.handle("totals")?,
            times: loaded.handle("times")?,
            loaded,
        })
    }

    /// Sets the limit above which a request is slow; `None` for none.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn set_slow_limit_ns(&mut self, limit_ns: Option<u64>) -> Result<(), BpfError> {
        let limit_ns = limit_ns.unwrap_or(0);
        if self.wanted.slow_limit_ns == limit_ns {
            return Ok(());
        }
        self.wanted.slow_limit_ns = limit_ns;
        write_single(&self.data, &self.wanted)
    }

    /// Sets the connections whose requests are counted as wanted.
    ///
    /// # Errors
    /// [`BpfError::Map`]; [`BpfError::Invalid`] for a name that no congestion control can have.
    pub fn set_wanted(&mut self, wanted: &ServiceWanted) -> Result<(), BpfError> {
        let mut written = self.wanted;
        written.congestion_control = [0; 16];
        (written.kind, written.opened_after_ns) = match wanted {
            ServiceWanted::Nothing => (0, 0),
            ServiceWanted::CongestionControl(name) => {
                if name.len() > CONGESTION_BYTES_MAX {
                    let what = format!("{name:?} is not the name of a congestion control");
                    return Err(BpfError::Invalid { what });
                }
                for (to, byte) in written.congestion_control.iter_mut().zip(name.bytes()) {
                    *to = byte as _;
                }
                (1, 0)
            }
            ServiceWanted::OpenedAfter(ns) => (2, *ns),
        };
        self.wanted = written;
        write_single(&self.data, &self.wanted)
    }

    /// Counts since the start.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn totals(&self) -> Result<ServiceTotals, BpfError> {
        let mut sum = ServiceTotals::default();
        for cpu in per_cpu::<types::service_totals>(&self.totals, 0)? {
            let counts = [
                cpu.answered,
                cpu.slow,
                cpu.wanted,
                cpu.refused,
                cpu.abandoned,
                cpu.stale,
                cpu.acknowledged,
                cpu.overtaken,
                cpu.unasked,
                cpu.resent,
                cpu.untracked,
            ];
            sum.counts_mut().into_iter().zip(counts).for_each(|(to, count)| *to += count);
        }
        Ok(sum)
    }

    /// Histogram of a span since the start.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn times(&self, span: ServiceSpan) -> Result<ServiceTimes, BpfError> {
        let mut sum = ServiceTimes::default();
        for cpu in per_cpu::<types::service_times>(&self.times, span as u32)? {
            sum.sum_ns = sum.sum_ns.wrapping_add(cpu.sum_ns);
            for (sum, count) in sum.bins.iter_mut().zip(cpu.bins) {
                *sum = sum.wrapping_add(count);
            }
        }
        Ok(sum)
    }

    /// Requests that wait now, on connections of the calling thread's network namespace. Takes time with the number of its
    /// TCP sockets.
    ///
    /// # Errors
    /// [`BpfError::Map`], also if this kernel cannot go through the connections.
    pub fn waiting(&mut self) -> Result<ServiceWaiting, BpfError> {
        let failed = |what, source| BpfError::Map { map: "connections".into(), what, source };
        let link = self.waiting.as_ref();
        let link = link.map_err(|why| failed("listed", io::Error::other(why.clone())))?;
        write_single(
            &self.bss,
            &types::service_waiting {
                oldest_ns: 0,
                late_count: 0,
                active_count: 0,
                open_count: 0,
                unacknowledged_count: 0,
            },
        )?;
        let mut run = Iter::new(link).map_err(|why| map_error("connections", "listed", why))?;
        let mut text = [0; 64];
        while run.read(&mut text).map_err(|why| failed("listed", why))? > 0 {}
        let found: types::service_waiting = read_single(&self.bss)?;
        Ok(ServiceWaiting {
            oldest_ns: found.oldest_ns,
            late_count: found.late_count,
            active_count: found.active_count,
            open_count: found.open_count,
            unacknowledged_count: found.unacknowledged_count,
        })
    }

    /// Attaches the empty program, whose runs are counted like the others: see [`RunTime::empty`].
    ///
    /// # Errors
    /// [`BpfError::Map`] if the kernel does not attach it.
    pub fn attach_empty(&self) -> Result<EmptyRuns, BpfError> {
        EmptyRuns::attach(&self.loaded)
    }

    /// Run time of the programs while [`super::RunTimeCounting`] was on.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn run_time(&self) -> Result<RunTime, BpfError> {
        self.tracepoints.run_time(&self.loaded)
    }

    /// Number of attached programs.
    pub fn program_count(&self) -> usize {
        self.links.len()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::netns::Netns;

    #[test]
    fn bins_go_up_without_a_gap_and_are_at_most_two_percent_wide() {
        let starts: Vec<u64> = (0..SERVICE_BINS - 64).map(service_bin_ns).collect();
        assert!(starts.windows(2).all(|pair| pair[0] < pair[1]));
        let wide = starts.windows(2).skip(64).all(|pair| (pair[1] - pair[0]) * 50 <= pair[0]);
        assert!(wide, "{starts:?}");
        assert!(*starts.last().unwrap() > 60_000_000_000, "a minute fits");
    }

    #[test]
    fn a_time_that_was_taken_back_leaves_no_count() {
        let (mut earlier, mut later) = (ServiceTimes::default(), ServiceTimes::default());
        (earlier.sum_ns, earlier.bins[5]) = (5, 1);
        (later.sum_ns, later.bins[9]) = (u64::MAX, 1);
        assert_eq!((later.bins_since(&earlier)[5], later.bins_since(&earlier)[9]), (0, 1));
        assert_eq!(later.sum_ns_since(&earlier), 0);
    }

    #[test]
    fn requests_of_a_port_are_counted_timed_and_found_waiting() {
        let netns = Netns::current().unwrap().inode().unwrap() as u32;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut probe = match ServiceProbe::attach(netns, &[port]) {
            Ok(probe) => probe,
            Err(why) => return testkit::skip("bpf", why.to_string()),
        };
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut byte = [0; 8];
        for _ in 0..100 {
            client.write_all(b"ask").unwrap();
            assert_eq!(server.read(&mut byte).unwrap(), 3);
            server.write_all(b"answer").unwrap();
            assert_eq!(client.read(&mut byte).unwrap(), 6);
        }
        let (totals, before) =
            (probe.totals().unwrap(), probe.times(ServiceSpan::FirstSend).unwrap());
        assert_eq!(totals.answered_count, 100, "{totals:?}");
        assert_eq!((totals.refused_count, totals.unasked_count), (0, 0), "{totals:?}");
        let bins = before.bins_since(&ServiceTimes::default());
        assert_eq!(bins.iter().sum::<u32>(), 100);
        assert!(before.sum_ns_since(&ServiceTimes::default()) > 100_000);

        probe.set_slow_limit_ns(Some(50_000_000)).unwrap();
        client.write_all(b"ask").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        let waiting = probe.waiting().unwrap();
        assert!(waiting.oldest_ns > 90_000_000 && waiting.open_count == 1, "{waiting:?}");
        server.write_all(b"late").unwrap();
        assert_eq!(client.read(&mut byte).unwrap(), 4);
        let after = probe.times(ServiceSpan::FirstSend).unwrap();
        let bins = after.bins_since(&before);
        let bin = bins.iter().position(|count| *count > 0).unwrap();
        assert!(service_bin_ns(bin) > 90_000_000, "{bin}");
        assert_eq!(probe.totals().unwrap().slow_count, 1);
        assert_eq!(probe.waiting().unwrap().open_count, 0);

        probe.set_wanted(&ServiceWanted::CongestionControl("none-such".into())).unwrap();
        client.write_all(b"ask").unwrap();
        server.write_all(b"a").unwrap();
        assert_eq!(probe.totals().unwrap().wanted_count, 0);
        let own = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
        probe.set_wanted(&ServiceWanted::CongestionControl(own.trim().into())).unwrap();
        client.write_all(b"ask").unwrap();
        server.write_all(b"a").unwrap();
        assert_eq!(probe.totals().unwrap().wanted_count, 1);
        client.write_all(b"ask").unwrap();
        drop(server);
        assert_eq!(probe.totals().unwrap().refused_count, 1, "{:?}", probe.totals());
    }
}
