//! Settings of single NAPI instances, by netdev generic netlink.
//!
//! Source: the kernel's Documentation/netlink/specs/netdev.yaml, napi-get and napi-set.

use std::time::Instant;

use netlink_bindings::builtin::Nlmsghdr;
use netlink_bindings::netdev::{OpNapiSetDo, QueueType, Request};
use netlink_bindings::nlctrl;
use netlink_bindings::traits::NetlinkRequest;
use sys::keeper::{REPEAT_INTERVAL, REPEAT_TIMEOUT};

use super::error::{NetError, ask};

/// An operation that kernels before 6.13 do not have.
const PER_NAPI: &str = "setting single NAPI instances (Linux 6.13 and newer)";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Napi {
    /// As in SO_INCOMING_NAPI_ID.
    pub id: u32,
    pub settings: NapiSettings,
}

/// When the interrupt of a NAPI instance is enabled again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NapiSettings {
    /// Empty polls before the interrupt is enabled.
    pub defer_hard_irqs: u32,
    /// Time between polls while the interrupt is deferred, ns.
    pub gro_flush_timeout_ns: u32,
    /// Longest time without an interrupt while epoll finds events by busy polling, ns; 0 if it is not
    /// suspended.
    pub irq_suspend_timeout_ns: u32,
}

/// NAPI instances of an interface, in ascending order of their ids.
///
/// Errors: [`NetError::Unsupported`] before Linux 6.13.
pub fn napi_instances(ifindex: u32) -> Result<Vec<Napi>, NetError> {
    napi_settings_are_offered()?;
    let what = format!("reading the NAPI instances of interface {ifindex}");
    let mut found = ask(what, |socket| {
        let mut request = Request::new().op_napi_get_dump();
        request.encode().push_ifindex(ifindex);
        let mut replies = socket.request(&request)?;
        let mut found = Vec::new();
        while let Some(reply) = replies.recv() {
            let reply = reply?;
            // Instances without settings are those of a device that is down.
            let Ok(id) = reply.get_id() else { continue };
            let settings = NapiSettings {
                defer_hard_irqs: reply.get_defer_hard_irqs()?,
                gro_flush_timeout_ns: reply.get_gro_flush_timeout()?,
                irq_suspend_timeout_ns: reply.get_irq_suspend_timeout()?,
            };
            found.push(Napi { id, settings });
        }
        Ok(found)
    })?;
    found.sort_by_key(|napi| napi.id);
    Ok(found)
}

/// Id of the NAPI instance of a receive queue.
///
/// Errors: [`NetError::Unsupported`] if the kernel or the driver does not name it.
pub fn napi_of_rx_queue(ifindex: u32, queue: u32) -> Result<u32, NetError> {
    napi_settings_are_offered()?;
    let what = format!("naming the NAPI instance of receive queue {queue} of interface {ifindex}");
    let id = ask(what.clone(), |socket| {
        let mut request = Request::new().op_queue_get_do();
        request.encode().push_ifindex(ifindex).push_type(QueueType::Rx as u32).push_id(queue);
        let mut reply = socket.request(&request)?;
        Ok(reply.recv_one()?.get_napi_id().ok())
    })?;
    id.ok_or(NetError::Unsupported { what })
}

/// Waits for an instance that is disabled for the moment.
pub fn set_napi(id: u32, settings: &NapiSettings) -> Result<(), NetError> {
    let end = Instant::now() + REPEAT_TIMEOUT;
    loop {
        let set = ask(format!("setting NAPI instance {id}"), |socket| {
            socket.request(&set_request(id, settings))?.recv_ack()
        });
        if !set.as_ref().is_err_and(NetError::is_not_found) || Instant::now() > end {
            return set;
        }
        std::thread::sleep(REPEAT_INTERVAL);
    }
}

/// The request of [`set_napi`] as a complete message that asks for an answer.
pub(crate) fn napi_message(id: u32, settings: &NapiSettings) -> Result<Vec<u8>, NetError> {
    let family = family()?;
    let request = set_request(id, settings);
    let payload = request.payload();
    let len_bytes = Nlmsghdr::len() + payload.len();
    // struct nlmsghdr: length, type, flags, sequence number, port of the sender (the kernel fills it in).
    let mut message = (len_bytes as u32).to_ne_bytes().to_vec();
    message.extend(family.to_ne_bytes());
    message.extend(((libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(payload);
    Ok(message)
}

fn set_request(id: u32, settings: &NapiSettings) -> OpNapiSetDo<'static> {
    let mut request = Request::new().op_napi_set_do();
    request
        .encode()
        .push_id(id)
        .push_defer_hard_irqs(settings.defer_hard_irqs)
        .push_gro_flush_timeout(settings.gro_flush_timeout_ns)
        .push_irq_suspend_timeout(settings.irq_suspend_timeout_ns);
    request
}

/// Succeeds if the kernel has settings of single NAPI instances and this process may change them.
///
/// Tested on an instance that cannot exist: ids start above the number of CPUs.
pub(crate) fn napi_settings_are_offered() -> Result<(), NetError> {
    const NO_SUCH_ID: u32 = 1;
    family()?;
    let settings = NapiSettings::default();
    let tried =
        ask(PER_NAPI, |socket| socket.request(&set_request(NO_SUCH_ID, &settings))?.recv_ack());
    match tried {
        Err(error @ (NetError::Unsupported { .. } | NetError::Denied { .. })) => Err(error),
        _ => Ok(()),
    }
}

/// Number of generic netlink's family `netdev`, which came with Linux 6.3.
fn family() -> Result<u16, NetError> {
    let found = ask(PER_NAPI, |socket| {
        let mut request = nlctrl::Request::new().op_getfamily_do();
        request.encode().push_family_name_bytes(b"netdev");
        let mut reply = socket.request(&request)?;
        Ok(reply.recv_one()?.get_family_id()?)
    });
    match found {
        Err(error) if error.is_not_found() => {
            Err(NetError::Unsupported { what: PER_NAPI.to_owned() })
        }
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_as_long_as_it_says_and_asks_for_an_answer() {
        let Ok(message) = napi_message(7, &NapiSettings::default()) else {
            testkit::skip("kernel", "generic netlink's family netdev needs Linux 6.3");
            return;
        };
        let word = |at: usize| u32::from_ne_bytes(message[at..at + 4].try_into().unwrap());
        assert_eq!(word(0) as usize, message.len());
        assert_eq!(word(4) >> 16, (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u32);
        // NETDEV_CMD_NAPI_SET of linux/netdev.h.
        assert_eq!(message[16], 14);
    }
}
