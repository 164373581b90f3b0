//! Virtual interfaces that hand over packets one by one.

use super::Offloads;
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses};
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};
use crate::net::Link;
use crate::tune::Target;

pub(super) const CAUSE: Cause = Cause {
    title: "Offloads are missing on a virtual path: one packet at a time",
    symptom: "a virtual machine or container is several times slower than another one on the same host; CPU time \
              per byte is high",
    evidence: "`ethtool -k` of tap, veth and bridge: tx-checksumming, tcp-segmentation-offload or \
               generic-receive-offload off; a tap without IFF_VNET_HDR; packets a second of the size of the MTU",
    remedy: "ethtool -K IF tx on tso on gro on; create the tap with vnet_hdr",
    undo: "ethtool -K IF with the old values",
    references: &[
        "Documentation/networking/segmentation-offloads.rst",
        "https://github.com/Mirantis/virtlet/issues/882",
    ],
    is_of_forwarding: true,
    ..Cause::new("offload-missing", check)
};

/// Packets a second, and their mean size in bytes, from which bulk data is handed over one by one.
const BUSY_PER_S: f64 = 5000.0;
const LARGE_BYTES: u64 = 1000;
/// Beginnings of the names of programs that run virtual machines.
const MONITORS: [&str; 7] = ["qemu", "kvm", "cloud-hyp", "firecracker", "crosvm", "VBox", "vmware"];

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    for (link, offloads) in super::busy(view, window) {
        let kind = link.kind.as_deref();
        if !matches!(kind, None | Some("veth" | "tun" | "bridge")) {
            continue;
        }
        let missing = missing(&offloads, kind.is_none());
        let owner = tap_without_header(view, link);
        if missing.is_empty() && owner.is_none() {
            continue;
        }
        let direction = if missing == ["rx-gro"] { "rx" } else { "tx" };
        let packets = window.link(&link.name, &format!("{direction}_packets"));
        let bulk = is_bulk(packets, window.link(&link.name, &format!("{direction}_bytes")));
        // A real card without GRO, or a tap, is judged by its packets alone.
        if (kind.is_none() && !bulk) || (missing.is_empty() && packets.total == 0) {
            continue;
        }
        notes.find(judge(&link.name, &missing, owner.as_deref(), (packets, bulk), &view.prefix()));
    }
}

/// Offloads that are off and can be switched on, by their names in the kernel.
fn missing(offloads: &Offloads, is_card: bool) -> Vec<&'static str> {
    let is_off =
        |name: &str| offloads.get(name).is_some_and(|state| state.is_offered && !state.is_on);
    // Without checksums there is no segmentation. A veth without GRO is how it comes.
    let wanted: &[&str] = match is_card {
        true => &["rx-gro", "tx-tcp-segmentation"],
        false => &["tx-checksum-ip-generic", "tx-tcp-segmentation"],
    };
    wanted.iter().copied().filter(|name| is_off(name)).collect()
}

/// The program of a tap whose frames come without what is left to a device, as a virtual machine's has it; `None`
/// for another interface.
fn tap_without_header(view: &Evidence, link: &Link) -> Option<String> {
    let is_tap = link.kind.as_deref() == Some("tun") && link.mac.is_some();
    if !is_tap || link.has_offload_header {
        return None;
    }
    let is_bridged = view.details.get(&link.index).is_some_and(|detail| detail.master.is_some());
    let owner = crate::causes::links::tun_owner(view, &link.name)?;
    (is_bridged || MONITORS.iter().any(|monitor| owner.starts_with(monitor))).then_some(owner)
}

fn is_bulk(packets: Losses, bytes: Losses) -> bool {
    packets.per_second() >= BUSY_PER_S && bytes.now / packets.now.max(1) >= LARGE_BYTES
}

/// - `owner`: program of a tap without the header of offloads.
fn judge(
    name: &str,
    missing: &[&str],
    owner: Option<&str>,
    (packets, is_bulk): (Losses, bool),
    prefix: &str,
) -> Finding {
    let (severity, confidence) = if is_bulk {
        (Severity::Medium, Confidence::Now)
    } else {
        (Severity::Low, Confidence::SetUp)
    };
    let rate = match is_bulk {
        true => format!(", {:.0} a second now", packets.per_second()),
        false => String::new(),
    };
    let reason = match owner {
        Some(owner) => format!("{owner} opened it without offloads (IFF_VNET_HDR)"),
        None => format!("{} off", missing.join(" and ")),
    };
    let found = finding(severity, format!("{name} hands over packets one by one{rate}: {reason}"))
        .seen(confidence)
        .read(format!("ethtool features of {name}"), reason)
        .read(format!("packets of {name}"), packets.evidence())
        .because(
            "with segmentation a packet of 64 KB crosses the virtual path once; without it, 45 packets do \
             (Documentation/networking/segmentation-offloads.rst)",
        )
        .effect("several times fewer packets for the same bytes")
        .risk("a driver or device behind it that cannot checksum or split loses packets: test it first");
    if owner.is_some() {
        return found.change(
            "start the virtual machine with vnet_hdr=on for this tap (QEMU, libvirt: driver name='vhost')",
            "as before",
        );
    }
    let short = |feature: &&str| match *feature {
        "rx-gro" => "gro",
        "tx-tcp-segmentation" => "tso",
        _ => "tx",
    };
    let command = |value: &str| {
        let words: Vec<String> =
            missing.iter().map(|one| format!("{} {value}", short(one))).collect();
        format!("{prefix}ethtool -K {name} {}", words.join(" "))
    };
    let target = Target::Interface(name.to_owned());
    let found = found.change(command("on"), command("off"));
    let knobs = missing.iter().map(short).filter(|short| *short != "tx");
    knobs.fold(found, |found, knob| found.setting(knob, &target, "on"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::ethtool::Offload;

    fn losses(now: u64) -> Losses {
        Losses { now, total: now, window: std::time::Duration::from_secs(1) }
    }

    #[test]
    fn offload_that_is_off_costs_when_bulk_data_crosses() {
        let off = Offload { is_on: false, is_offered: true };
        let fixed = Offload { is_on: false, is_offered: false };
        let table =
            |tso| [("tx-tcp-segmentation".to_owned(), tso), ("rx-gro".to_owned(), off)].into();
        assert_eq!(missing(&table(off), false), ["tx-tcp-segmentation"]);
        assert!(missing(&table(fixed), false).is_empty());
        assert!(is_bulk(losses(80_000), losses(120_000_000)));
        assert!(!is_bulk(losses(80_000), losses(8_000_000)), "small packets");
        let found = judge("veth1", &["tx-tcp-segmentation"], None, (losses(80_000), true), "");
        assert_eq!(
            (found.severity, found.change.as_str()),
            (Severity::Medium, "ethtool -K veth1 tso on")
        );
        let tap = judge("tap0", &[], Some("qemu (process 5)"), (losses(3), false), "");
        assert!(tap.severity == Severity::Low && tap.what.contains("IFF_VNET_HDR"), "{tap:?}");
    }
}
