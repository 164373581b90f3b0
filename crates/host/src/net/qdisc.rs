//! Queueing disciplines.

use std::fmt;

use netlink_bindings::tc::{self, OptionsMsg, TcFifoQopt, Tcmsg};

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

/// A queueing discipline that slows an interface on purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShaperQdisc {
    /// Index of the interface.
    pub interface: u32,
    /// `tbf`, `htb`, `cake` or `netem`.
    pub kind: String,
    /// True at the root of the interface, false below another discipline.
    pub is_root: bool,
    pub limits: QdiscLimits,
    /// Packets that it dropped since it was made.
    pub drop_count: u32,
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

impl fmt::Display for ShaperQdisc {
    /// `tbf, 10 Mbit/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limits {
            QdiscLimits::Bucket { bits_per_s, .. } | QdiscLimits::Rate { bits_per_s } => {
                write!(f, "{}, {}", self.kind, rate_text(bits_per_s))
            }
            QdiscLimits::Impaired { delay_ns, loss_ppm } => write!(
                f,
                "{}, delay {:.1} ms, loss {} %",
                self.kind,
                delay_ns as f64 / 1e6,
                loss_ppm as f64 / 1e4
            ),
        }
    }
}

/// A rate with its unit.
pub(crate) fn rate_text(bits_per_s: u64) -> String {
    match bits_per_s {
        bits if bits >= 1_000_000_000 => format!("{} Gbit/s", bits as f64 / 1e9),
        bits if bits >= 1_000_000 => format!("{} Mbit/s", bits as f64 / 1e6),
        bits => format!("{} kbit/s", bits as f64 / 1e3),
    }
}

/// Nanoseconds of a tick in which the kernel counts the times of queueing disciplines.
///
/// Source: net/pkt_sched.h, PSCHED_SHIFT.
const TICK_NS: u64 = 1 << 6;

/// Rate in bits per second, from bytes; a rate of 4 GB/s and more is in an attribute of its own.
fn bits_per_s(short: u32, long: Option<u64>) -> u64 {
    long.unwrap_or_else(|| short.into()).saturating_mul(8)
}

/// Shapers of all interfaces of the namespace.
pub fn shapers() -> Result<Vec<ShaperQdisc>, NetError> {
    let mut shapers = ask("listing queueing disciplines", |socket| {
        let request = tc::Request::new().op_getqdisc_dump(&Tcmsg::new());
        let mut replies = socket.request(&request)?;
        let mut shapers = Vec::new();
        while let Some((header, attributes)) = replies.recv().transpose()? {
            let limits = match attributes.get_options() {
                Ok(OptionsMsg::Tbf(options)) => {
                    let Ok(parms) = options.get_parms() else { continue };
                    let bits_per_s = bits_per_s(parms.rate.rate, options.get_rate64().ok());
                    let burst_ns = u128::from(parms.buffer) * u128::from(TICK_NS);
                    let burst = burst_ns * u128::from(bits_per_s / 8) / 1_000_000_000;
                    QdiscLimits::Bucket {
                        bits_per_s,
                        burst_bytes: burst as u64,
                        queue_bytes: parms.limit,
                    }
                }
                // Its classes have the rates.
                Ok(OptionsMsg::Htb(_)) => QdiscLimits::Rate { bits_per_s: 0 },
                Ok(OptionsMsg::Cake(options)) => {
                    QdiscLimits::Rate { bits_per_s: bits_per_s(0, options.get_base_rate64().ok()) }
                }
                Ok(OptionsMsg::Netem(parms, _)) => QdiscLimits::Impaired {
                    delay_ns: u64::from(parms.latency) * TICK_NS,
                    loss_ppm: u64::from(parms.loss) * 1_000_000 / u64::from(u32::MAX),
                },
                _ => continue,
            };
            let queue = attributes.get_stats2().and_then(|stats| stats.get_queue());
            shapers.push(ShaperQdisc {
                interface: header.ifindex as u32,
                kind: attributes.get_kind()?.to_string_lossy().into_owned(),
                is_root: header.parent == ROOT,
                limits,
                drop_count: queue.map_or(0, |queue| queue.drops),
            });
        }
        Ok(shapers)
    })?;
    for shaper in shapers.iter_mut().filter(|shaper| shaper.kind == "htb") {
        shaper.limits = QdiscLimits::Rate { bits_per_s: largest_class(shaper.interface)? };
    }
    // One without a rate limits nothing.
    shapers.retain(|shaper| shaper.limits != QdiscLimits::Rate { bits_per_s: 0 });
    Ok(shapers)
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
