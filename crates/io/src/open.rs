//! The engines, and the choice of one at run time.

use crate::engine::{EngineKind, EngineSpec, Receiving, Setup};
use crate::{EpollEngine, IoError, PacketEngine, UdpEngine, UringEngine, XdpEngine, XdpQueues};

/// Engine chosen at run time, once, before the loop.
#[derive(Debug)]
pub enum AnyEngine {
    Udp(Box<UdpEngine>),
    Epoll(Box<EpollEngine>),
    Uring(Box<UringEngine>),
    Packet(Box<PacketEngine>),
    Xdp(Box<XdpEngine>),
    XdpQueues(Box<XdpQueues>),
}

/// Evaluates an expression with the engine inside an [`AnyEngine`].
#[macro_export]
macro_rules! on_engine {
    ($any:expr, $engine:ident => $body:expr) => {
        $crate::on_engine!($any, $engine => $body, Udp Epoll Uring Packet Xdp XdpQueues)
    };
    ($any:expr, $engine:ident => $body:expr, $($kind:ident)+) => {
        match $any {
            $($crate::AnyEngine::$kind($engine) => {
                let $engine = &mut **$engine;
                $body
            })+
        }
    };
}

/// Opens the two directions of an end that pings as engines of their own, so that each may run on a
/// thread of its own; in the calling thread's network namespace.
///
/// Returns the sender's, then the receiver's. Both use the same port and queue.
pub fn open_halves(setup: &Setup<'_>) -> Result<(AnyEngine, AnyEngine), IoError> {
    Ok(match setup.spec.kind {
        EngineKind::Udp => {
            let (tx, rx) = UdpEngine::open_halves(setup)?;
            (AnyEngine::Udp(Box::new(tx)), over(setup.spec, rx)?)
        }
        EngineKind::Packet => {
            let (tx, rx) = PacketEngine::open_halves(setup)?;
            (AnyEngine::Packet(Box::new(tx)), AnyEngine::Packet(Box::new(rx)))
        }
        EngineKind::Xdp => {
            let (tx, rx) = XdpEngine::open_halves(setup)?;
            (AnyEngine::Xdp(Box::new(tx)), AnyEngine::Xdp(Box::new(rx)))
        }
    })
}

/// A UDP engine that receives, behind the calls that it receives by.
fn over(spec: &EngineSpec, udp: UdpEngine) -> Result<AnyEngine, IoError> {
    Ok(match spec.receiving {
        Receiving::Direct => AnyEngine::Udp(Box::new(udp)),
        Receiving::Epoll | Receiving::EpollBusyPoll => {
            AnyEngine::Epoll(Box::new(EpollEngine::over(udp)?))
        }
        Receiving::IoUring => AnyEngine::Uring(Box::new(UringEngine::over(udp)?)),
    })
}

/// Opens an engine in the calling thread's network namespace.
pub fn open(setup: &Setup<'_>) -> Result<AnyEngine, IoError> {
    Ok(match setup.spec.kind {
        EngineKind::Udp if setup.role.receives() => over(setup.spec, UdpEngine::open(setup)?)?,
        EngineKind::Udp => AnyEngine::Udp(Box::new(UdpEngine::open(setup)?)),
        EngineKind::Packet => AnyEngine::Packet(Box::new(PacketEngine::open(setup)?)),
        EngineKind::Xdp if setup.spec.takes_queues(setup.local) && setup.role.receives() => {
            AnyEngine::XdpQueues(Box::new(XdpQueues::open(setup)?))
        }
        EngineKind::Xdp => {
            let queue = setup.local.queue;
            let mut port = XdpEngine::open_port(setup, queue..queue + 1)?;
            AnyEngine::Xdp(Box::new(port.remove(0)))
        }
    })
}
