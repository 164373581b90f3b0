//! Queueing disciplines.

use std::fmt;

use netlink_bindings::tc::{self, IterableAttrs, OptionsMsg, TcFifoQopt, TcaStatsAppMsg, Tcmsg};
use netlink_bindings::utils::ErrorContext;

use super::error::{NetError, ask};

/// The discipline at the root of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qdisc {
    /// Kind, such as `noqueue`, `mq`, `pfifo`.
    pub kind: String,
    /// It is the kernel's default, which returns when another one is removed.
    pub is_default: bool,
    /// Longest queue of `pfifo` in packets and of `bfifo` in bytes; `None` for other kinds.
    pub limit: Option<u32>,
}

/// Source: linux/pkt_sched.h, TC_H_ROOT.
const ROOT: u32 = 0xffff_ffff;

/// Returns the root discipline of an interface; `None` if there is none, as on one that is down.
pub fn root_qdisc(index: u32) -> Result<Option<Qdisc>, NetError> {
    ask(format!("reading the queueing discipline of interface {index}"), |socket| {
        let request = tc::Request::new().op_getqdisc_dump(&at_root(index));
        let mut replies = socket.request(&request)?;
        let mut found = None;
        while let Some((header, attributes)) = replies.recv().transpose()? {
            if header.ifindex as u32 != index || header.parent != ROOT {
                continue;
            }
            let limit = match attributes.get_options() {
                Ok(OptionsMsg::Pfifo(options) | OptionsMsg::Bfifo(options)) => Some(options.limit),
                _ => None,
            };
            found = Some(Qdisc {
                kind: attributes.get_kind()?.to_string_lossy().into_owned(),
                is_default: header.handle == 0,
                limit,
            });
        }
        Ok(found)
    })
}

/// A queueing discipline with its state and counters since it was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QdiscState {
    /// Index of the interface.
    pub interface: u32,
    /// Kind, such as `fq_codel`.
    pub kind: String,
    /// Number as in `tc`: `8001:` is 0x8001_0000; 0 for the kernel's default.
    pub handle: u32,
    /// Class or discipline that it is below, in the same form; all ones at the root.
    pub parent: u32,
    /// `None` unless it slows the interface on purpose.
    pub limits: Option<QdiscLimits>,
    pub sent_bytes: u64,
    pub sent_packets: u32,
    /// Packets in the queue now, those of its children included.
    pub queued_packets: u32,
    pub queued_bytes: u32,
    pub drop_count: u32,
    /// Times that a packet had to wait for the rate, or that the queue was full, by kind.
    pub overlimit_count: u32,
    pub requeue_count: u32,
    /// Settings and counters of its kind, by their names in `tc -s qdisc`: of `fq` `limit`, `flow_limit`,
    /// `flows_plimit`, `throttled`, `horizon_drops`; of `fq_codel` `limit`, `ecn_mark`, `drop_overlimit`,
    /// `drop_overmemory`; of `pfifo` and `bfifo` `limit`.
    pub own: Vec<(&'static str, u64)>,
}

impl QdiscState {
    /// True at the root of the interface, false below another discipline.
    pub fn is_root(&self) -> bool {
        self.parent == ROOT
    }

    /// Handle as `tc` prints it, such as `8001:`.
    pub fn name(&self) -> String {
        format!("{:x}:", self.handle >> 16)
    }

    /// A setting or counter of [`Self::own`].
    pub fn own(&self, name: &str) -> Option<u64> {
        self.own.iter().find(|(own, _)| *own == name).map(|(_, value)| *value)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QdiscLimits {
    /// Token bucket: rate, size of a burst, and length of the queue.
    Bucket { bits_per_s: u64, burst_bytes: u64, queue_bytes: u32 },
    /// Largest rate of any class, or of all.
    Rate { bits_per_s: u64 },
    /// Delay of each packet, and share that is lost, in millionths.
    Impaired { delay_ns: u64, loss_ppm: u64 },
}

impl fmt::Display for QdiscState {
    /// `tbf, 10 Mbit/s`, or the kind of one that slows nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        match self.limits {
            None => Ok(()),
            Some(QdiscLimits::Bucket { bits_per_s, .. } | QdiscLimits::Rate { bits_per_s }) => {
                write!(f, ", {}", rate_text(bits_per_s))
            }
            Some(QdiscLimits::Impaired { delay_ns, loss_ppm }) => write!(
                f,
                ", delay {:.1} ms, loss {} %",
                delay_ns as f64 / 1e6,
                loss_ppm as f64 / 1e4
            ),
        }
    }
}

/// A rate with its unit.
pub(crate) fn rate_text(bits_per_s: u64) -> String {
    match bits_per_s {
        bits if bits >= 1_000_000_000 => format!("{:.1} Gbit/s", bits as f64 / 1e9),
        bits if bits >= 1_000_000 => format!("{:.1} Mbit/s", bits as f64 / 1e6),
        bits => format!("{:.0} kbit/s", bits as f64 / 1e3),
    }
    .replace(".0 ", " ")
}

/// Nanoseconds of a tick in which the kernel counts the times of queueing disciplines.
///
/// Source: net/pkt_sched.h, PSCHED_SHIFT.
const TICK_NS: u64 = 1 << 6;

/// Rate in bits per second, from bytes; a rate of 4 GB/s and more is in an attribute of its own.
fn bits_per_s(short: u32, long: Option<u64>) -> u64 {
    long.unwrap_or_else(|| short.into()).saturating_mul(8)
}

/// Most disciplines that are read of a namespace.
const QDISCS_MAX: usize = 1 << 14;

/// Queueing disciplines of all interfaces of the namespace; at most 16,384.
pub fn qdiscs() -> Result<Vec<QdiscState>, NetError> {
    let mut qdiscs = ask("listing queueing disciplines", |socket| {
        let request = tc::Request::new().op_getqdisc_dump(&Tcmsg::new());
        let mut replies = socket.request(&request)?;
        let mut qdiscs = Vec::new();
        while let Some((header, attributes)) = replies.recv().transpose()? {
            if qdiscs.len() < QDISCS_MAX {
                qdiscs.push(decode(&header, &attributes)?);
            }
        }
        Ok(qdiscs)
    })?;
    for htb in qdiscs.iter_mut().filter(|qdisc| qdisc.kind == "htb") {
        // One without a rate limits nothing.
        let bits_per_s = Some(largest_class(htb.interface)?).filter(|rate| *rate > 0);
        htb.limits = bits_per_s.map(|bits_per_s| QdiscLimits::Rate { bits_per_s });
    }
    Ok(qdiscs)
}

fn decode(header: &Tcmsg, attributes: &IterableAttrs<'_>) -> Result<QdiscState, ErrorContext> {
    let stats = attributes.get_stats2();
    let queue = stats.as_ref().ok().and_then(|stats| stats.get_queue().ok()).unwrap_or_default();
    let basic = stats.as_ref().ok().and_then(|stats| stats.get_basic().ok()).unwrap_or_default();
    let options = attributes.get_options().ok();
    let mut own = options.as_ref().map(own_settings).unwrap_or_default();
    if let Some(Ok(app)) = stats.ok().map(|stats| stats.get_app()) {
        own.extend(own_counters(&app));
    }
    Ok(QdiscState {
        interface: header.ifindex as u32,
        kind: attributes.get_kind()?.to_string_lossy().into_owned(),
        handle: header.handle,
        parent: header.parent,
        limits: options.as_ref().and_then(limits),
        sent_bytes: basic.bytes,
        sent_packets: basic.packets,
        queued_packets: queue.qlen,
        queued_bytes: queue.backlog,
        drop_count: queue.drops,
        overlimit_count: queue.overlimits,
        requeue_count: queue.requeues,
        own,
    })
}

fn own_settings(options: &OptionsMsg<'_>) -> Vec<(&'static str, u64)> {
    let settings: &[(&'static str, Option<u32>)] = match options {
        OptionsMsg::Fq(fq) => {
            &[("limit", fq.get_plimit().ok()), ("flow_limit", fq.get_flow_plimit().ok())]
        }
        OptionsMsg::FqCodel(codel) => &[("limit", codel.get_limit().ok())],
        OptionsMsg::Pfifo(fifo) | OptionsMsg::Bfifo(fifo) => &[("limit", Some(fifo.limit))],
        _ => &[],
    };
    settings.iter().filter_map(|(name, value)| Some((*name, (*value)?.into()))).collect()
}

fn own_counters(app: &TcaStatsAppMsg<'_>) -> Vec<(&'static str, u64)> {
    match app {
        TcaStatsAppMsg::Fq(fq) => vec![
            ("flows_plimit", fq.flows_plimit),
            ("throttled", fq.throttled),
            ("horizon_drops", fq.horizon_drops),
        ],
        TcaStatsAppMsg::FqCodel(codel) => vec![
            ("ecn_mark", codel.ecn_mark.into()),
            ("drop_overlimit", codel.drop_overlimit.into()),
            ("drop_overmemory", codel.drop_overmemory.into()),
        ],
        _ => Vec::new(),
    }
}

/// `None` for a kind that slows nothing, and for `htb`, whose classes have the rates.
fn limits(options: &OptionsMsg<'_>) -> Option<QdiscLimits> {
    match options {
        OptionsMsg::Tbf(options) => {
            let parms = options.get_parms().ok()?;
            let bits_per_s = bits_per_s(parms.rate.rate, options.get_rate64().ok());
            let burst_ns = u128::from(parms.buffer) * u128::from(TICK_NS);
            let burst = burst_ns * u128::from(bits_per_s / 8) / 1_000_000_000;
            Some(QdiscLimits::Bucket {
                bits_per_s,
                burst_bytes: burst as u64,
                queue_bytes: parms.limit,
            })
        }
        OptionsMsg::Cake(options) => {
            let bits_per_s = bits_per_s(0, options.get_base_rate64().ok());
            (bits_per_s > 0).then_some(QdiscLimits::Rate { bits_per_s })
        }
        OptionsMsg::Netem(parms, _) => Some(QdiscLimits::Impaired {
            delay_ns: u64::from(parms.latency) * TICK_NS,
            loss_ppm: u64::from(parms.loss) * 1_000_000 / u64::from(u32::MAX),
        }),
        _ => None,
    }
}

/// Largest rate of the classes of `htb`, bits per second; 0 if there is none.
fn largest_class(index: u32) -> Result<u64, NetError> {
    ask(format!("listing traffic classes of interface {index}"), |socket| {
        let header = Tcmsg { ifindex: index as i32, ..Tcmsg::new() };
        let list = tc::Request::new().set_flags(libc::NLM_F_DUMP as u16);
        let request = list.op_gettclass_do(&header);
        let mut replies = socket.request(&request)?;
        let mut largest = 0;
        while let Some((_, attributes)) = replies.recv().transpose()? {
            if let Ok(OptionsMsg::Htb(options)) = attributes.get_options()
                && let Ok(parms) = options.get_parms()
            {
                largest = largest.max(bits_per_s(parms.ceil.rate, options.get_ceil64().ok()));
            }
        }
        Ok(largest)
    })
}

/// Packets that the root discipline of an interface has dropped, those of its children included; 0 if there is
/// none.
pub fn qdisc_drop_count(index: u32) -> Result<u64, NetError> {
    ask(format!("reading the queueing discipline of interface {index}"), |socket| {
        let request = tc::Request::new().op_getqdisc_dump(&at_root(index));
        let mut replies = socket.request(&request)?;
        let mut count = 0;
        while let Some((header, attributes)) = replies.recv().transpose()? {
            if header.ifindex as u32 == index && header.parent == ROOT {
                count = attributes.get_stats().map_or(0, |stats| u64::from(stats.drops));
            }
        }
        Ok(count)
    })
}

/// Sets a FIFO as root discipline, limited to `limit` packets, or bytes if `bytes` is set.
pub fn set_root_fifo(index: u32, limit: u32, bytes: bool) -> Result<(), NetError> {
    ask(format!("setting the queueing discipline of interface {index}"), |socket| {
        let mut request =
            tc::Request::new().set_create().set_replace().op_newqdisc_do(&at_root(index));
        let options = TcFifoQopt { limit };
        let attributes = request.encode();
        drop(if bytes {
            attributes.nested_options_bfifo(&options)
        } else {
            attributes.nested_options_pfifo(&options)
        });
        socket.request(&request)?.recv_ack()
    })
}

/// Sets a root discipline without parameters, such as `noqueue` or `fq`.
pub fn set_root_qdisc(index: u32, kind: &str) -> Result<(), NetError> {
    ask(format!("setting the queueing discipline of interface {index}"), |socket| {
        let mut request =
            tc::Request::new().set_create().set_replace().op_newqdisc_do(&at_root(index));
        request.encode().push_kind_bytes(kind.as_bytes());
        socket.request(&request)?.recv_ack()
    })
}

/// Removes the root discipline: the kernel's default returns.
pub fn remove_root_qdisc(index: u32) -> Result<(), NetError> {
    ask(format!("removing the queueing discipline of interface {index}"), |socket| {
        socket.request(&tc::Request::new().op_delqdisc_do(&at_root(index)))?.recv_ack()
    })
}

fn at_root(index: u32) -> Tcmsg {
    Tcmsg { ifindex: index as i32, parent: ROOT, ..Tcmsg::new() }
}
