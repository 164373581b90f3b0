//! Errors of BPF programs; each message has a remedy.

use std::io;
use std::path::PathBuf;

use super::XdpMode;
use super::attached::AttachedProgram;
use super::interface::Interface;

#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    #[error(
        "{what} needs {missing}, which this process does not have; run it as root, or grant it: \
         sudo setcap cap_bpf,cap_net_admin,cap_net_raw,cap_perfmon+ep \"$(command -v wirepath)\""
    )]
    Permission {
        what: String,
        missing: String,
        #[source]
        source: io::Error,
    },

    /// The kernel or libbpf refused the object.
    #[error("BPF program `{program}` was not loaded ({needs} is needed){log}")]
    Load {
        program: &'static str,
        /// Oldest kernel that has all it uses, and this use.
        needs: &'static str,
        /// Messages of libbpf with the verifier's log; starts with a line break unless empty.
        log: String,
        #[source]
        source: io::Error,
    },

    /// Another program is attached.
    #[error(
        "{interface} already has an XDP program{}; end that process, or take the program off: \
         `sudo ip link set dev {} xdp off` (`sudo bpftool link` lists links){}",
        .program.as_ref().map(|program| format!(" {program}")).unwrap_or_default(),
        .interface.name,
        .program.as_ref().map(|program| program.remedy()).unwrap_or_default()
    )]
    AlreadyAttached {
        interface: Interface,
        /// The attached program, if its id could be read.
        program: Option<Box<AttachedProgram>>,
        #[source]
        source: io::Error,
    },

    /// The file is not a map that can be used.
    #[error("the map of AF_XDP sockets at {} {why}", .path.display())]
    PinnedMap {
        path: PathBuf,
        /// The fault, as the rest of a sentence.
        why: String,
        #[source]
        source: Option<io::Error>,
    },

    /// The pinned map has a socket of another process at this queue.
    #[error(
        "the map of AF_XDP sockets at {} has a socket of another process for queue {queue}; end that \
         process, or name another queue with -q",
        .path.display()
    )]
    QueueTaken { path: PathBuf, queue: u32 },

    /// No program passes frames to the sockets of the pinned map.
    #[error(
        "{interface} has no XDP program, so the map at {} would get no frame; attach the program that the \
         map is of, or omit --xsk-map, and Wirepath attaches its own",
        .path.display()
    )]
    NoProgram { interface: Interface, path: PathBuf },

    /// This program has been attached before.
    #[error("this program is already attached to {interface}; detach it first")]
    InUse { interface: Interface },

    /// The MTU, or that of a veth peer, does not fit one page.
    #[error(
        "{interface}, or its veth peer, has an MTU too big for native XDP with one buffer a frame \
         (about 3500 bytes); lower the MTU (`sudo ip link set dev {} mtu 1500`), load the program \
         with fragments, or use SKB mode",
        .interface.name
    )]
    MtuTooBig {
        interface: Interface,
        #[source]
        source: io::Error,
    },

    /// A veth peer sends on more queues than the interface receives on.
    #[error(
        "{interface} has fewer receive queues than its veth peer has transmit queues; native XDP \
         needs one for each: `sudo ethtool -L {} rx N`, or use SKB mode",
        .interface.name
    )]
    TooFewQueues {
        interface: Interface,
        #[source]
        source: io::Error,
    },

    /// The driver cannot do it.
    #[error(
        "{interface} cannot run XDP in {mode} mode; {}",
        match .mode {
            XdpMode::Native => "use SKB mode, or another driver (LRO off may help: ethtool -K DEV lro off)",
            XdpMode::Skb => "switch off LRO: ethtool -K DEV lro off",
        }
    )]
    ModeUnsupported {
        interface: Interface,
        mode: XdpMode,
        #[source]
        source: io::Error,
    },

    /// There is no such interface in this thread's network namespace.
    #[error(
        "no interface with index {ifindex} in this network namespace; `ip link` lists them \
         (the index counts in one namespace only)"
    )]
    NoInterface {
        ifindex: u32,
        #[source]
        source: io::Error,
    },

    /// Any other refusal to attach.
    #[error("{program} could not be attached to {interface}")]
    Attach {
        program: &'static str,
        interface: Interface,
        #[source]
        source: io::Error,
    },

    /// The generator's target takes no frames.
    #[error(
        "{interface} took none of the generated frames; bring it and its peer up, and if it is a \
         veth, give its peer an XDP program (a counting or passing one will do) or switch on GRO \
         there: `sudo ethtool -K PEER gro on`"
    )]
    TargetRefuses {
        interface: Interface,
        /// Error of the driver; `None` if the redirect failed before it.
        #[source]
        source: Option<io::Error>,
    },

    /// A run of the generator failed.
    #[error("the generator could not run into {interface}")]
    Run {
        interface: Interface,
        #[source]
        source: io::Error,
    },

    /// The socket map has no such slot.
    #[error("queue {queue} is outside the filter, which was loaded for {queues} queues")]
    NoQueue {
        queue: u32,
        /// Queues the filter was loaded for.
        queues: u32,
    },

    /// A map could not be read or written.
    #[error("BPF map `{map}` could not be {what}")]
    Map {
        map: String,
        /// `read`, `written`.
        what: &'static str,
        #[source]
        source: io::Error,
    },

    /// A parameter makes no sense.
    #[error("{what}")]
    Invalid { what: String },

    /// The kernel lacks a tracepoint.
    #[error("{what} cannot be traced: {tracepoint}; Linux 6.3 or newer is needed")]
    Unsupported { what: &'static str, tracepoint: String },
}

/// Oldest kernel that loads a program of `bpf/`, with the reason.
///
/// - `has_frags`: it takes packets of several buffers.
pub(super) fn kernel_for(program: &str, has_frags: bool) -> &'static str {
    match program {
        "feed" => "Linux 6.1 or newer (a time stamp taken in XDP)",
        "generator" => "Linux 5.18 or newer (live frames of XDP)",
        "explain" => "Linux 5.18 or newer (reasons of drops)",
        "stages" => "Linux 6.3 or newer (tracepoints of sockets)",
        _ if has_frags => "Linux 5.18 or newer (XDP on packets of several buffers)",
        _ => "Linux 5.9 or newer (programs attached by a link)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(program: &'static str, has_frags: bool) -> String {
        let source = io::Error::from_raw_os_error(libc::EINVAL);
        let needs = kernel_for(program, has_frags);
        BpfError::Load { program, needs, log: String::new(), source }.to_string()
    }

    #[test]
    fn a_program_that_is_refused_names_the_kernel_for_its_own_use() {
        for (program, has_frags, version) in [
            ("probe", false, "Linux 5.9"),
            ("probe", true, "Linux 5.18"),
            ("generator", false, "Linux 5.18"),
            ("explain", false, "Linux 5.18"),
            ("feed", true, "Linux 6.1"),
        ] {
            let said = refusal(program, has_frags);
            assert!(said.contains(&format!("{version} or newer")), "{said}");
        }
    }
}
