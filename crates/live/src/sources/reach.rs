//! Share of a service's requests that a setting reaches.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use host::net::TcpSocket;
use host::netns::Netns;
use sys::bpf::ServiceWanted;

use super::Sources;
use super::error::LiveError;
use super::network::connections;
use model::live::GuardSample;

/// Connections that use a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Those with this congestion control.
    CongestionControl(String),
    /// Those that were opened after the switch, at this time of CLOCK_MONOTONIC.
    NewSocketsOnly { after_ns: u64 },
    /// All of them.
    AtOnce,
}

/// Requests of a short window, and those on connections that use the setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    pub reached_count: u64,
    /// Requests; without BPF, segments with data.
    pub request_count: u64,
    pub window: Duration,
    /// False if segments were counted in place of requests.
    pub is_exact: bool,
}

impl Reach {
    /// 0 to 1; `None` without requests.
    pub fn share(&self) -> Option<f64> {
        (self.request_count > 0).then(|| self.reached_count as f64 / self.request_count as f64)
    }
}

/// Connections of a service.
#[derive(Debug)]
pub struct Connections {
    netns: Netns,
    ports: Vec<u16>,
}

impl Connections {
    /// Closes them as a reset does, so that the clients open new ones. Returns their number.
    ///
    /// Errors: the kernel refuses it.
    pub fn close(&self) -> Result<usize, LiveError> {
        Ok(self.netns.run(|| host::net::close_connections(&self.ports))??)
    }
}

/// Requests after which a window ends.
const REQUESTS_WANTED: u64 = 200;
const WINDOW_MIN: Duration = Duration::from_secs(1);
const WINDOW_MAX: Duration = Duration::from_secs(5);
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

impl Sources {
    /// Counts requests for 1 to 5 s, and those on connections that use the setting.
    ///
    /// - `look`: takes a sample of the guard each 100 ms, and may end the count; it is not called without BPF.
    ///
    /// Errors: the service cannot be followed, or `look` ends the count.
    pub fn reach(
        &mut self,
        wanted: &Wanted,
        look: &mut dyn FnMut(&GuardSample) -> Result<(), LiveError>,
    ) -> Result<Reach, LiveError> {
        let begun = Instant::now();
        let of_all = *wanted == Wanted::AtOnce;
        if let Some(probe) = &mut self.probe {
            probe.set_wanted(&match wanted {
                Wanted::CongestionControl(name) => ServiceWanted::CongestionControl(name.clone()),
                Wanted::NewSocketsOnly { after_ns } => ServiceWanted::OpenedAfter(*after_ns),
                Wanted::AtOnce => ServiceWanted::Nothing,
            })?;
            let before = probe.totals()?;
            let mut request_count = 0;
            while !is_over(begun.elapsed(), request_count) {
                std::thread::sleep(SAMPLE_INTERVAL);
                look(&self.guard_sample(None)?)?;
                request_count = self.sampled.answered_count - before.answered_count;
            }
            let window = begun.elapsed();
            if let Some(probe) = &mut self.probe {
                probe.set_wanted(&ServiceWanted::Nothing)?;
            }
            let reached_count = self.sampled.wanted_count - before.wanted_count;
            // The counts are read one after another, while requests go on.
            let reached_count =
                if of_all { request_count } else { reached_count.min(request_count) };
            return Ok(Reach { reached_count, request_count, window, is_exact: true });
        }
        let Some(target) = &self.target else {
            let why = "the service is not named".to_owned();
            return Err(LiveError::NoFigure { why });
        };
        let before = connections(&target.netns, &target.ports)?;
        let mut request_count = 0;
        while !is_over(begun.elapsed(), request_count) {
            std::thread::sleep(WINDOW_MIN);
            let now = connections(&target.netns, &target.ports)?;
            let counted = segments(&before, &now, wanted, &self.first_connections);
            request_count = counted.1;
            if is_over(begun.elapsed(), request_count) {
                let window = begun.elapsed();
                return Ok(Reach {
                    reached_count: counted.0,
                    request_count,
                    window,
                    is_exact: false,
                });
            }
        }
        Ok(Reach { reached_count: 0, request_count: 0, window: begun.elapsed(), is_exact: false })
    }

    /// Connections of the service; `None` if it is not named.
    ///
    /// Errors: its namespace cannot be opened again.
    pub fn connections(&self) -> Result<Option<Connections>, LiveError> {
        let Some(target) = &self.target else { return Ok(None) };
        Ok(Some(Connections { netns: target.netns.try_clone()?, ports: target.ports.clone() }))
    }

    /// Notes the connections of now, so that later ones are known as new without BPF. Call it right before the switch.
    ///
    /// Errors: the kernel does not list them.
    pub fn mark_connections(&mut self) -> Result<(), LiveError> {
        if let Some(target) = self.target.as_ref().filter(|_| self.probe.is_none()) {
            let found = connections(&target.netns, &target.ports)?;
            self.first_connections =
                found.iter().map(|socket| (socket.local, socket.remote)).collect();
        }
        Ok(())
    }
}

fn is_over(elapsed: Duration, request_count: u64) -> bool {
    elapsed >= WINDOW_MAX || (elapsed >= WINDOW_MIN && request_count >= REQUESTS_WANTED)
}

/// Segments with data that arrived between two listings: on wanted connections, and on all.
fn segments(
    before: &[TcpSocket],
    now: &[TcpSocket],
    wanted: &Wanted,
    old: &BTreeSet<(SocketAddr, SocketAddr)>,
) -> (u64, u64) {
    let counts: BTreeMap<(SocketAddr, SocketAddr), u32> = before
        .iter()
        .map(|socket| ((socket.local, socket.remote), socket.info.data_segs_in))
        .collect();
    let (mut reached, mut all) = (0, 0);
    for socket in now {
        let key = (socket.local, socket.remote);
        let earlier = counts.get(&key).copied().unwrap_or(0);
        let count = u64::from(socket.info.data_segs_in.saturating_sub(earlier));
        let is_wanted = match wanted {
            Wanted::CongestionControl(name) => socket.congestion == *name,
            Wanted::NewSocketsOnly { .. } => !old.contains(&key),
            Wanted::AtOnce => true,
        };
        all += count;
        reached += if is_wanted { count } else { 0 };
    }
    (reached, all)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use host::netns::Netns;

    use super::*;

    #[test]
    fn without_bpf_segments_of_wanted_connections_are_counted() {
        let netns = Netns::current().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ports = [listener.local_addr().unwrap().port()];
        let mut old = TcpStream::connect(("127.0.0.1", ports[0])).unwrap();
        let (_old_end, _) = listener.accept().unwrap();
        let before = connections(&netns, &ports).unwrap();
        let keys: BTreeSet<_> = before.iter().map(|socket| (socket.local, socket.remote)).collect();
        let mut new = TcpStream::connect(("127.0.0.1", ports[0])).unwrap();
        let (_new_end, _) = listener.accept().unwrap();
        old.write_all(b"a").unwrap();
        new.write_all(b"a").unwrap();
        let now = connections(&netns, &ports).unwrap();
        let count = |wanted: &Wanted| segments(&before, &now, wanted, &keys);
        assert_eq!(count(&Wanted::AtOnce), (2, 2));
        assert_eq!(count(&Wanted::NewSocketsOnly { after_ns: 0 }), (1, 2));
        let own = now[0].congestion.clone();
        assert_eq!(count(&Wanted::CongestionControl(own)), (2, 2));
        assert_eq!(count(&Wanted::CongestionControl("none-such".into())), (0, 2));
    }
}
