//! The file of an experiment, as its user writes it.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

/// An experiment with virtual machines.
///
/// Names of files are relative to the folder of this one. Durations are text such as `500ms`, `2s` or `1m30s`. What an
/// arm may have stands above the arms for all that have none of their own.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct VmFile {
    /// Address that answers pings: the guest's, or one behind it. With two cards `far-address` unless given.
    pub ping: Option<Ipv4Addr>,
    /// Address of this side, in the guest's /24. Default: the last one of the network that is free.
    pub near_address: Option<Ipv4Addr>,
    /// Address of the other side of a guest with two cards.
    pub far_address: Option<Ipv4Addr>,
    /// The guest's address as a router of this side.
    pub gateway: Option<Ipv4Addr>,
    /// The guest's address as a router of the far side.
    pub far_gateway: Option<Ipv4Addr>,
    /// Sign that the guest is ready: line:REGEX on its console, sleep:MS, or `answer`. Default: the first answer.
    pub ready: Option<String>,
    /// Time limit for a guest to get ready or, with load `start`, to answer. Default: 20s.
    pub ready_within: Option<String>,
    /// Load unless the command line names one.
    pub load: Option<String>,
    /// Command of load `client`, which runs at this side to its end, with $WIREPATH_FAR.
    pub client: Option<String>,
    /// Command that serves it at the far side of a guest with two cards.
    pub server: Option<String>,
    /// Figures of the client's output: `NAME=SOURCE lower|higher`, as of `prove command`. Default: those of the
    /// client's adapter.
    pub metrics: Vec<String>,
    /// Counts from outside: `counts` of KVM and of threads, `trace` with QEMU's trace events, which cost it some time,
    /// or `no`. Default: counts.
    pub outside: Option<String>,
    /// Speed at which characters of the console are priced, bits per second. Default: 115200.
    pub baud: Option<u32>,
    /// Begin of the names of files with each arm's last trial as a trace for Perfetto: NAME-ARM.json.
    pub timeline: Option<PathBuf>,
    /// Kernel that the machine boots.
    pub image: Option<PathBuf>,
    /// Options of QEMU beside those of image, cards and console.
    pub qemu: Option<String>,
    /// The kernel's command line.
    pub append: Option<String>,
    /// Command line of another monitor in place of QEMU, with {tap}, {tap2}, {mac}, {mac2}, {image}, {append} and
    /// {console}.
    pub command: Option<String>,
    /// QEMU's machine, as for -M.
    pub machine: Option<String>,
    /// QEMU's program. Default: that of the image's architecture.
    pub emulator: Option<String>,
    /// Model of the cards, with properties. Default: virtio-net-device on ARM, virtio-net-pci on x86.
    pub card: Option<String>,
    /// Number of cards, 1 or 2. Default: 1, and 2 with far-address.
    pub cards: Option<u8>,
    /// MAC address of the first card; the second has the next one.
    pub mac: Option<String>,
    /// Machines, the first of which is the baseline.
    pub arm: Vec<VmArm>,
}

/// A machine.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct VmArm {
    /// Name in the result.
    pub name: String,
    /// Kernel that the machine boots.
    pub image: Option<PathBuf>,
    /// Options of QEMU beside those of image, cards and console.
    pub qemu: Option<String>,
    /// The kernel's command line.
    pub append: Option<String>,
    /// Command line of another monitor in place of QEMU.
    pub command: Option<String>,
    /// QEMU's machine, as for -M.
    pub machine: Option<String>,
    /// QEMU's program.
    pub emulator: Option<String>,
    /// Model of the cards, with properties.
    pub card: Option<String>,
    /// Number of cards, 1 or 2.
    pub cards: Option<u8>,
    /// MAC address of the first card.
    pub mac: Option<String>,
}

impl VmFile {
    /// Parses a file. Errors: it is not one, with the line and the unknown key.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            format!("line {line}: {}", error.message().replace('\n', " "))
        })
    }

    /// An arm with what stands above the arms.
    pub(crate) fn complete(&self, arm: &VmArm) -> VmArm {
        let (common, arm) = (self.clone(), arm.clone());
        // A command and options of QEMU exclude each other, so an arm's own way to start replaces the other one.
        let command = if arm.qemu.is_some() { None } else { common.command };
        let qemu = if arm.command.is_some() { None } else { common.qemu };
        VmArm {
            name: arm.name,
            image: arm.image.or(common.image),
            qemu: arm.qemu.or(qemu),
            append: arm.append.or(common.append),
            command: arm.command.or(command),
            machine: arm.machine.or(common.machine),
            emulator: arm.emulator.or(common.emulator),
            card: arm.card.or(common.card),
            cards: arm.cards.or(common.cards),
            mac: arm.mac.or(common.mac),
        }
    }
}
