//! Configuration of a replay.

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

use super::faults::Faults;
use crate::schedule::SendSchedule;

/// Pace of a replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReplayPace {
    /// As captured, times a speed factor.
    Own(f64),
    /// As fast as possible.
    Max,
    /// Messages per second.
    Rate(SendSchedule),
}

/// Configuration of a replay.
#[derive(Debug, Clone)]
pub struct ReplayPlan {
    /// Destinations of line A and, if any, line B.
    pub to: Vec<SocketAddrV4>,
    /// Filter on destinations in the capture; the second is replayed as line B. Empty: all datagrams
    /// on all lines.
    pub from: Vec<SocketAddrV4>,
    pub ifindex: u32,
    pub ifname: String,
    /// Time to live of datagrams to groups.
    pub ttl: u8,
    pub pace: ReplayPace,
    pub faults: Faults,
    /// Session time to replay.
    pub duration: Option<Duration>,
    /// Number of datagrams of the source to replay.
    pub count: Option<u64>,
    /// CPU to run on.
    pub pin: Option<usize>,
    /// Output file for send times.
    pub stamps: Option<PathBuf>,
    /// Address that answers requests for messages of MoldUDP64, until the replay is stopped.
    pub serve: Option<SocketAddrV4>,
}
