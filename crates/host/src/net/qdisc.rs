//! Queueing disciplines.

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
