//! A UDP socket whose receiver waits in epoll.

use std::os::fd::AsFd;
use std::time::Duration;

use sys::epoll::Epoll;
use sys::socket;

use super::{POLL_TIMEOUT, UdpEngine};
use crate::engine::{Arrival, Echoed, Engine, EngineReport, Receiving, Wait};
use crate::error::IoError;

/// Waits in epoll before each receive call, as an event loop does: level-triggered, one call per event.
#[derive(Debug)]
pub struct EpollEngine {
    udp: UdpEngine,
    epoll: Epoll,
    /// Longest wait: zero for a spinning receiver.
    timeout: Duration,
    polls_queue: bool,
    /// The last nap ended with an arrival.
    is_ready: bool,
    wait_count: u64,
    arrival_count: u64,
}

impl EpollEngine {
    pub(crate) fn over(udp: UdpEngine) -> Result<Self, IoError> {
        let epoll = Epoll::of(udp.as_fd()).map_err(|e| udp.system("epoll_create1", e))?;
        let polls_queue = udp.spec.receiving == Receiving::EpollBusyPoll;
        if polls_queue {
            epoll.set_busy_poll().map_err(|e| udp.system("EPIOCSPARAMS (Linux 6.9)", e))?;
        }
        let timeout = if udp.spec.wait == Wait::Spin { Duration::ZERO } else { POLL_TIMEOUT };
        let (is_ready, wait_count, arrival_count) = (false, 0, 0);
        Ok(EpollEngine { udp, epoll, timeout, polls_queue, is_ready, wait_count, arrival_count })
    }

    fn wait(&mut self, timeout: Duration) -> Result<bool, IoError> {
        self.wait_count += 1;
        let ready = self.epoll.wait(timeout).map_err(|e| self.udp.system("epoll_wait", e))?;
        if ready.failed && self.udp.sends_pinned() {
            // Notifications of sends wait in the socket's error queue.
            self.udp.reap_pinned()?;
            return Ok(ready.readable);
        }
        // An error of the socket, such as "port unreachable", is read by the receive call.
        Ok(ready.readable || ready.failed)
    }

    /// True if the socket may have something.
    fn arrived(&mut self) -> Result<bool, IoError> {
        if std::mem::take(&mut self.is_ready) {
            return Ok(true);
        }
        self.wait(self.timeout)
    }
}

impl Engine for EpollEngine {
    fn rx_take(&mut self, each: &mut impl FnMut(Arrival<'_>)) -> Result<usize, IoError> {
        if !self.arrived()? {
            return Ok(0);
        }
        let taken = self.udp.rx_take(each)?;
        self.arrival_count += taken as u64;
        Ok(taken)
    }

    fn nap(&mut self, timeout: Duration) -> Result<(), IoError> {
        self.is_ready = self.wait(timeout)?;
        Ok(())
    }

    fn tx_post(
        &mut self,
        flow: usize,
        want: usize,
        fill: &mut impl FnMut(&mut [u8]),
    ) -> Result<usize, IoError> {
        self.udp.tx_post(flow, want, fill)
    }

    fn echo(
        &mut self,
        answer: &mut impl FnMut(&mut Arrival<'_>) -> Option<u32>,
    ) -> Result<Echoed, IoError> {
        if !self.arrived()? {
            return Ok(Echoed::default());
        }
        let echoed = self.udp.echo(answer)?;
        self.arrival_count += echoed.taken as u64;
        Ok(echoed)
    }

    fn finish(&mut self) -> EngineReport {
        let mut report = self.udp.finish();
        report.syscall_count += self.wait_count;
        report.counters.push(("epoll_wait_count".into(), self.wait_count));
        if self.polls_queue
            && let Ok(set) = self.epoll.busy_poll()
        {
            let polling = format!("{} µs, {} packets a poll", set.usecs, set.budget);
            report.mode.push(("epoll busy polling".into(), polling));
        }
        if !self.polls_queue || self.arrival_count == 0 {
            return report;
        }
        let napi = socket::incoming_napi_id(self.udp.as_fd()).unwrap_or(0);
        report.mode.push(("napi id".into(), napi.to_string()));
        if napi == 0 {
            report.not_effective.push((
                "epoll-busy-poll".into(),
                "the socket's SO_INCOMING_NAPI_ID is 0: this driver names no NAPI instance, so epoll has \
                 none to poll"
                    .into(),
            ));
        }
        report
    }
}
