//! Engine settings of a command line.

use io::{
    Copying, EngineKind, EngineSpec, Receiving, Stamps, UNALIGNED_FRAME_BYTES, Wait, XdpMode,
};
use probe::role;
use remote::Failure;

use super::args::EngineArgs;

/// Engine by the options. Errors: an option that the engine does not have.
pub(super) fn spec(args: &EngineArgs, payload_bytes: usize) -> Result<EngineSpec, Failure> {
    let (xdp, udp) = (args.engine == EngineKind::Xdp, args.engine == EngineKind::Udp);
    let native = args.native || args.mode == Some(XdpMode::Native);
    let of_xdp = [
        (native, "native mode"),
        (args.zero_copy || args.require_zero_copy, "zero-copy"),
        (args.xsk_map.is_some(), "--xsk-map"),
        (args.need_wakeup, "--need-wakeup"),
        (args.multi_buffer, "--multi-buffer"),
        (args.huge_pages, "--huge-pages"),
        (args.ring_entries.is_some(), "--ring-entries"),
        (args.unaligned_chunks, "--unaligned-chunks"),
        (args.queues > 1, "--queues"),
    ];
    let of_udp = [
        (args.gso, "--gso"),
        (args.receiving != Receiving::Direct, "--receiving"),
        (args.zero_copy_send, "--zero-copy-send"),
        (args.rcvbuf.is_some(), "--rcvbuf"),
        (args.stamps == Some(Stamps::Hardware), "--stamps hardware"),
    ];
    let of_both = [(args.stamps.is_some(), "--stamps")];
    for (options, engines, is_theirs) in [
        (&of_xdp[..], "xdp", xdp),
        (&of_udp[..], "udp", udp),
        (&of_both[..], "udp or packet", !xdp),
    ] {
        if let Some((_, option)) = options.iter().find(|(is_given, _)| *is_given && !is_theirs) {
            return Err(Failure::Usage(format!("{option} goes with --engine {engines}")));
        }
    }
    if args.irq_suspend && args.receiving != Receiving::EpollBusyPoll {
        return Err(Failure::Usage("--irq-suspend goes with --receiving epoll-busy-poll".into()));
    }
    if payload_bytes < role::PAYLOAD_BYTES_MIN {
        return Err(Failure::Usage(format!(
            "--size {payload_bytes} is below the probe's header of {} bytes",
            role::PAYLOAD_BYTES_MIN
        )));
    }
    let mut spec = EngineSpec::plain(args.engine);
    spec.wait = if args.spin { Wait::Spin } else { Wait::Block };
    spec.batch = usize::from(args.batch);
    spec.gso = args.gso;
    spec.xdp_mode = if native { XdpMode::Native } else { XdpMode::Skb };
    spec.copying = match (args.require_zero_copy, args.zero_copy) {
        (true, _) => Copying::RequireZeroCopy,
        (_, true) => Copying::PreferZeroCopy,
        _ => Copying::Copy,
    };
    spec.need_wakeup = args.need_wakeup;
    spec.busy_poll = args.busy_poll;
    spec.receiving = args.receiving;
    spec.zero_copy_send = args.zero_copy_send;
    spec.receive_buffer_bytes = args.rcvbuf;
    spec.frames = args.frames;
    let frame_bytes = if args.unaligned_chunks { UNALIGNED_FRAME_BYTES } else { spec.frame_bytes };
    spec.frame_bytes = args.frame_bytes.unwrap_or(frame_bytes);
    spec.huge_pages = args.huge_pages;
    spec.ring_entries = args.ring_entries;
    spec.unaligned_chunks = args.unaligned_chunks;
    spec.multi_buffer = args.multi_buffer;
    spec.all_queues = args.queue.is_none() && args.queues == 1;
    spec.vlan_tag = args.vlan;
    spec.stamps = args.stamps.unwrap_or(Stamps::Off);
    spec.xsk_map = args.xsk_map.clone();
    Ok(spec)
}
