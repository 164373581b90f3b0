//! Engine settings of a command line.

use io::{Copying, EngineKind, EngineSpec, Stamps};
use model::{Arm, SwitchId};
use probe::{Switch, engine_spec, role};
use remote::Failure;

use super::args::EngineArgs;

/// Switches that act on AF_PACKET.
const PACKET_SWITCHES: [Switch; 3] = [Switch::Spin, Switch::Batch, Switch::NoIdleStates];

/// Engine by the options. Errors: an option that the engine does not have.
pub(super) fn spec(args: &EngineArgs, payload_bytes: usize) -> Result<EngineSpec, Failure> {
    if args.packet
        && let Some(other) = beyond_packet(&args.arm)
    {
        return Err(Failure::Usage(format!(
            "{other} is not a switch of AF_PACKET; leave it or --packet out"
        )));
    }
    let mut spec = engine_spec(&args.arm);
    if args.packet {
        spec.kind = EngineKind::Packet;
    }
    let (is_xdp, is_udp) = (spec.kind == EngineKind::Xdp, spec.kind == EngineKind::Udp);
    let by_hardware = args.stamps == Some(Stamps::Hardware);
    let needs_bypass = "needs bypass in --arm";
    let needs_sockets = "needs UDP sockets: no --packet, and no bypass in --arm";
    for (is_misplaced, option, needs) in [
        (!is_xdp && args.xsk_map.is_some(), "--xsk-map", needs_bypass),
        (!is_xdp && args.multi_buffer, "--multi-buffer", needs_bypass),
        (!is_xdp && args.ring_entries.is_some(), "--ring-entries", needs_bypass),
        (!is_xdp && args.queues > 1, "--queues", needs_bypass),
        (!is_udp && args.rcvbuf.is_some(), "--rcvbuf", needs_sockets),
        (
            args.packet && by_hardware,
            "--stamps hardware",
            "needs UDP sockets or AF_XDP: no --packet",
        ),
        (
            is_xdp && by_hardware && !args.arm.has(Switch::Native),
            "--stamps hardware",
            "needs native in --arm: a driver tells its stamps to programs in the driver",
        ),
        (
            args.xsk_map.is_some() && args.stamps.is_some(),
            "--stamps",
            "needs the XDP program of Wirepath: no --xsk-map",
        ),
        (
            args.require_zero_copy && !args.arm.has(Switch::ZeroCopy),
            "--require-zero-copy",
            "needs zero-copy in --arm: bypass+native+zero-copy",
        ),
        (
            args.batch_size.is_some() && !args.arm.has(Switch::Batch),
            "--batch-size",
            "needs batch in --arm",
        ),
        (
            args.xsk_map.is_some() && args.arm.has(Switch::Native),
            "--xsk-map",
            "has the mode of the program that is attached: leave native out of --arm",
        ),
    ] {
        if is_misplaced {
            return Err(Failure::Usage(format!("{option} {needs}")));
        }
    }
    if payload_bytes < role::PAYLOAD_BYTES_MIN {
        return Err(Failure::Usage(format!(
            "--size {payload_bytes} is below the probe's header of {} bytes",
            role::PAYLOAD_BYTES_MIN
        )));
    }
    if args.require_zero_copy {
        spec.copying = Copying::RequireZeroCopy;
    }
    spec.xsk_map = args.xsk_map.clone();
    Ok(with_sizes(spec, args))
}

/// The engine of an arm with the sizes and the place of the options.
pub(super) fn with_sizes(arm: EngineSpec, args: &EngineArgs) -> EngineSpec {
    EngineSpec {
        batch: args.batch_size.filter(|_| arm.batch > 1).map_or(arm.batch, usize::from),
        receive_buffer_bytes: args.rcvbuf,
        frames: args.frames.unwrap_or(arm.frames),
        frame_bytes: args.frame_bytes.unwrap_or(arm.frame_bytes),
        ring_entries: args.ring_entries.or(arm.ring_entries),
        multi_buffer: args.multi_buffer,
        all_queues: args.queue.is_none() && args.queues == 1,
        vlan_tag: args.vlan,
        stamps: args.stamps.unwrap_or(Stamps::Off),
        ..arm
    }
}

/// A switch that AF_PACKET does not have.
fn beyond_packet(arm: &Arm) -> Option<&SwitchId> {
    let own = PACKET_SWITCHES.map(SwitchId::from);
    arm.switches.iter().find(|switch| !own.contains(switch))
}
