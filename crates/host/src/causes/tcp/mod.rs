//! TCP and its sockets.

mod collapse;
mod connections;
mod dead_peer;
mod emfile;
mod eph_ports;
mod fq_limit;
mod idle_restart;
mod listen_queue;
mod locked_reader;
mod nagle;
mod nat_idle;
mod orphans;
mod port_overlap;
mod reload;
mod sndbuf_fixed;
mod stalled;
mod syn_queue;
mod tcp_mem;
mod tw_recycle;

use super::Cause;

pub(super) const CAUSES: &[Cause] = &[
    nagle::CAUSE,
    emfile::CAUSE,
    port_overlap::CAUSE,
    dead_peer::CAUSE,
    nat_idle::CAUSE,
    eph_ports::CAUSE,
    tcp_mem::CAUSE,
    listen_queue::CAUSE,
    syn_queue::CAUSE,
    tw_recycle::CAUSE,
    fq_limit::CAUSE,
    reload::CAUSE,
    idle_restart::CAUSE,
    sndbuf_fixed::CAUSE,
    orphans::CAUSE,
    collapse::CAUSE,
    locked_reader::CAUSE,
];
