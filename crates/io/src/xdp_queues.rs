//! AF_XDP sockets on every receive queue of an interface, as one engine of one thread.
//!
//! A NIC chooses the queue of a flow by a hash of its addresses and ports. An engine on one queue of
//! several receives a flow only by chance.

use std::os::fd::AsFd;
use std::time::Duration;

use sys::poll;

use crate::engine::{Arrival, Echoed, Engine, EngineReport, Setup, Wait};
use crate::error::IoError;
use crate::udp::POLL_TIMEOUT;
use crate::xdp::XdpEngine;
use crate::xdp_memory::BIG_RINGS;

/// Frames of all queues together, as a multiple of those of one.
const FRAMES_FACTOR_MAX: u32 = 8;
/// Fewest frames of a queue.
const FRAMES_MIN: u32 = 512;

/// One [`XdpEngine`] a queue. Sends on the first; an echo leaves on the queue of its request.
#[derive(Debug)]
pub struct XdpQueues {
    engines: Vec<XdpEngine>,
    /// Queue that is looked at first: each gets its turn.
    next: usize,
    wait: Wait,
    /// No queue is polled any more.
    has_no_napi: bool,
}

impl XdpQueues {
    /// Opens a socket on each receive queue of the local interface.
    ///
    /// Errors: more than [`poll::FDS_MAX`] queues; as of [`XdpEngine::open_port`].
    pub fn open(setup: &Setup<'_>) -> Result<Self, IoError> {
        let queues = setup.local.queues.max(1);
        if queues as usize > poll::FDS_MAX {
            return Err(IoError::TooManyQueues {
                ifname: setup.local.ifname.clone(),
                queues,
                most: poll::FDS_MAX,
            });
        }
        let mut spec = setup.spec.clone();
        let most = spec.frames.saturating_mul(FRAMES_FACTOR_MAX) / queues;
        spec.frames = spec.frames.min(most.max(FRAMES_MIN));
        let engines = XdpEngine::open_port(&Setup { spec: &spec, ..*setup }, 0..queues)?;
        Ok(XdpQueues { engines, next: 0, wait: spec.wait, has_no_napi: false })
    }

    fn find(&mut self, mut is_ready: impl FnMut(&mut XdpEngine) -> bool) -> Option<usize> {
        let count = self.engines.len();
        let mut order = (0..count).map(|n| (self.next + n) % count);
        order.find(|at| is_ready(&mut self.engines[*at]))
    }

    /// A queue without arrivals knows no NAPI instance: without this, each empty look would be a system
    /// call on every such queue.
    fn learn_napi(&mut self, at: usize) {
        if !self.has_no_napi && self.engines[at].has_no_napi() {
            self.has_no_napi = true;
            self.engines.iter_mut().for_each(XdpEngine::stop_polling);
        }
    }

    /// Index of an engine with an arrival; waits for one as configured.
    fn ready(&mut self) -> Result<Option<usize>, IoError> {
        if let Some(at) = self.find(XdpEngine::is_ready).or_else(|| self.find(XdpEngine::prompt)) {
            return Ok(Some(at));
        }
        if self.wait == Wait::Spin {
            return Ok(None);
        }
        self.nap(POLL_TIMEOUT)?;
        Ok(self.find(XdpEngine::is_ready))
    }
}

impl Engine for XdpQueues {
    fn rx_post(&mut self) {
        self.engines.iter_mut().for_each(Engine::rx_post);
    }

    fn rx_take(&mut self, each: &mut impl FnMut(Arrival<'_>)) -> Result<usize, IoError> {
        let Some(at) = self.ready()? else { return Ok(0) };
        let taken = self.engines[at].rx_take(each)?;
        self.learn_napi(at);
        self.next = (at + 1) % self.engines.len();
        Ok(taken)
    }

    fn tx_post(
        &mut self,
        flow: usize,
        want: usize,
        fill: &mut impl FnMut(&mut [u8]),
    ) -> Result<usize, IoError> {
        self.engines[0].tx_post(flow, want, fill)
    }

    fn nap(&mut self, timeout: Duration) -> Result<(), IoError> {
        let fds: Vec<_> = self.engines.iter().map(AsFd::as_fd).collect();
        poll::readable(&fds, timeout).map_err(|source| IoError::System {
            what: "poll",
            ifname: "all queues".into(),
            source,
        })?;
        Ok(())
    }

    fn tx_reap(&mut self) -> usize {
        self.engines.iter_mut().map(Engine::tx_reap).sum()
    }

    fn echo(
        &mut self,
        answer: &mut impl FnMut(&mut Arrival<'_>) -> Option<u32>,
    ) -> Result<Echoed, IoError> {
        let Some(at) = self.ready()? else { return Ok(Echoed::default()) };
        let echoed = self.engines[at].echo(answer)?;
        self.learn_napi(at);
        self.next = (at + 1) % self.engines.len();
        Ok(echoed)
    }

    fn finish(&mut self) -> EngineReport {
        let mut sum = EngineReport::default();
        let mut short_count = 0;
        for engine in &mut self.engines {
            let report = engine.finish();
            short_count += report.not_effective.iter().filter(|(id, _)| id == BIG_RINGS).count();
            sum.merge(report);
        }
        // Traffic need not reach every queue: one ring that was used is enough.
        if short_count < self.engines.len() {
            sum.not_effective.retain(|(id, _)| id != BIG_RINGS);
        }
        sum.mode.push(("queues".into(), format!("{}, a socket each", self.engines.len())));
        sum
    }
}
