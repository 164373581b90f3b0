//! TCP and its sockets.

mod close_wait;
mod collapse;
mod connect_unanswered;
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
mod not_accepting;
mod orphans;
mod port_overlap;
mod refused_segments;
mod reload;
mod resets;
mod rwnd_limited;
mod sndbuf_fixed;
mod stalled;
mod syn_queue;
mod tcp_loss;
mod tcp_mem;
mod tw_overflow;
mod tw_recycle;
mod zero_window;

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
    not_accepting::CAUSE,
    syn_queue::CAUSE,
    tw_recycle::CAUSE,
    fq_limit::CAUSE,
    reload::CAUSE,
    idle_restart::CAUSE,
    sndbuf_fixed::CAUSE,
    orphans::CAUSE,
    collapse::CAUSE,
    locked_reader::CAUSE,
    connect_unanswered::CAUSE,
    tcp_loss::CAUSE,
    zero_window::CAUSE,
    rwnd_limited::CAUSE,
    close_wait::CAUSE,
    tw_overflow::CAUSE,
    resets::REFUSED,
    resets::RESETS,
    resets::UNREAD,
    refused_segments::SIGNATURE,
    refused_segments::SEQUENCE,
];
