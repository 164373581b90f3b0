//! A file becomes an experiment that is checked.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use host::net::Mac;
use lab::adapters::{self, Adapter, Figure};
use lab::program::Ready;
use model::{LoadKind, PathError, PathFile, PathLoad, did_you_mean, is_event_count};
use outside::ImageSize;

use crate::error::invalid;
use crate::file::{VmArm, VmFile};
use crate::image::{Architecture, read_architecture};
use crate::loads::VmLoad;

/// Time limit for a guest to get ready.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
const BAUD: u32 = 115_200;
/// QEMU's own default for the first card.
const MAC: Mac = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
/// Figures of an adapter that decide: each verdict more costs certainty.
const JUDGED_OF_ADAPTER: usize = 3;
/// Last part of this side's address, and that if the guest has it.
const NEAR_HOST: [u8; 2] = [254, 253];

/// A checked experiment.
#[derive(Debug)]
pub(crate) struct CheckedVm {
    /// Folder of the file, in which all commands run.
    pub(crate) folder: PathBuf,
    /// Address that is pinged.
    pub(crate) guest: Ipv4Addr,
    pub(crate) near: Ipv4Addr,
    pub(crate) gateway: Option<Ipv4Addr>,
    /// Needed by arms with two cards.
    pub(crate) far: Option<Ipv4Addr>,
    pub(crate) far_gateway: Option<Ipv4Addr>,
    /// `None` for the first answer.
    pub(crate) ready: Option<Ready>,
    pub(crate) ready_within: Duration,
    /// Default load.
    pub(crate) load: Option<VmLoad>,
    pub(crate) client: Option<CheckedClient>,
    pub(crate) outside: Outside,
    pub(crate) baud: u32,
    /// Absolute, without the arm's name and the extension.
    pub(crate) timeline: Option<PathBuf>,
    pub(crate) arms: Vec<CheckedArm>,
}

/// The client of load `client`.
#[derive(Debug)]
pub(crate) struct CheckedClient {
    pub(crate) line: String,
    pub(crate) server: Option<String>,
    pub(crate) adapter: Option<Adapter>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) judged: Vec<String>,
}

/// Counts from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outside {
    Nothing,
    Counts,
    Trace,
}

#[derive(Debug)]
pub(crate) struct CheckedArm {
    pub(crate) name: String,
    pub(crate) monitor: Monitor,
    /// Absolute.
    pub(crate) image: Option<PathBuf>,
    pub(crate) append: Option<String>,
    /// Code and constants of an ELF image.
    pub(crate) text_bytes: Option<u64>,
    /// Of each card, 1 or 2.
    pub(crate) macs: Vec<Mac>,
}

/// Program that runs a machine.
#[derive(Debug)]
pub(crate) enum Monitor {
    Qemu(Qemu),
    /// A command line with placeholders.
    Other(String),
}

#[derive(Debug)]
pub(crate) struct Qemu {
    pub(crate) emulator: String,
    pub(crate) architecture: Option<Architecture>,
    pub(crate) machine: Option<String>,
    pub(crate) card: Option<String>,
    pub(crate) options: String,
}

/// Checks everything but the host. Errors: the first mistake, with its remedy.
pub(crate) fn check(file: &PathFile) -> Result<CheckedVm, PathError> {
    let parsed = VmFile::parse(&file.text).map_err(|problem| {
        let remedy = "`wirepath schema prove vm file` lists the keys";
        invalid(format!("{}, {problem}", file.name.display()), remedy)
    })?;
    let folder = file.name.parent().unwrap_or(Path::new("/")).to_owned();
    let arms = checked_arms(&parsed, &folder)?;
    let has_far = arms.iter().any(|arm| arm.macs.len() == 2);
    if has_far && parsed.far_address.is_none() {
        return Err(missing("far-address", "the address of the far side, behind the second card"));
    }
    let Some(guest) = parsed.ping.or(parsed.far_address) else {
        return Err(missing("ping", "the guest's address, such as ping = \"192.168.1.2\""));
    };
    let near = match parsed.near_address {
        Some(near) => near,
        None if has_far => {
            return Err(missing("near-address", "the address of this side, at the first card"));
        }
        None => free_beside(guest),
    };
    if near == guest {
        return Err(invalid("near-address is the guest's", "give this side one of its own"));
    }
    let load = parsed.load.as_deref().map(load_named).transpose()?;
    let client = checked_client(&parsed, has_far)?;
    if load == Some(VmLoad::Client) && client.is_none() {
        return Err(missing("client", "the command of load client"));
    }
    Ok(CheckedVm {
        guest,
        near,
        gateway: parsed.gateway,
        far: parsed.far_address,
        far_gateway: parsed.far_gateway,
        ready: ready(parsed.ready.as_deref())?,
        ready_within: time("ready-within", parsed.ready_within.as_deref(), READY_TIMEOUT)?,
        load,
        client,
        outside: outside(parsed.outside.as_deref())?,
        baud: parsed.baud.unwrap_or(BAUD).max(1),
        timeline: parsed.timeline.map(|name| folder.join(name)),
        folder,
        arms,
    })
}

fn missing(key: &str, meaning: &str) -> PathError {
    invalid(format!("{key} is missing"), format!("add {meaning}"))
}

/// The last address of the guest's /24 that is free.
fn free_beside(guest: Ipv4Addr) -> Ipv4Addr {
    let [a, b, c, d] = guest.octets();
    Ipv4Addr::new(a, b, c, if d == NEAR_HOST[0] { NEAR_HOST[1] } else { NEAR_HOST[0] })
}

fn load_named(name: &str) -> Result<VmLoad, PathError> {
    let found = VmLoad::ALL.iter().copied().find(|load| load.name() == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = VmLoad::KINDS.iter().map(|kind| kind.name).collect();
        let hint = did_you_mean(name, names.iter().copied());
        invalid(format!("load: '{name}' is not a load{hint}"), format!("use {}", names.join(", ")))
    })
}

fn ready(text: Option<&str>) -> Result<Option<Ready>, PathError> {
    let text = text.unwrap_or("answer");
    if text == "answer" {
        return Ok(None);
    }
    match text.parse() {
        Ok(ready @ (Ready::Line(_) | Ready::Sleep(_))) => Ok(Some(ready)),
        Ok(_) => Err(invalid(
            format!("ready: {text:?} is of a program on this host"),
            "use line:REGEX of the console, sleep:MS, or answer",
        )),
        Err(error) => Err(invalid(
            format!("ready: {}", host::text::chain(&error)),
            "use line:REGEX of the console, sleep:MS, or answer",
        )),
    }
}

fn time(key: &str, text: Option<&str>, default: Duration) -> Result<Duration, PathError> {
    let Some(text) = text else { return Ok(default) };
    let read = humantime::parse_duration(text).ok().filter(|time| !time.is_zero());
    let limit = Duration::from_secs(3600);
    read.filter(|time| *time <= limit).ok_or_else(|| {
        invalid(
            format!("{key}: {text:?} is not a time of at most an hour"),
            "write 500ms, 2s or 1m30s",
        )
    })
}

fn outside(text: Option<&str>) -> Result<Outside, PathError> {
    match text {
        None | Some("counts") => Ok(Outside::Counts),
        Some("trace") => Ok(Outside::Trace),
        Some("no") => Ok(Outside::Nothing),
        Some(other) => Err(invalid(format!("outside: {other:?}"), "use counts, trace or no")),
    }
}

fn checked_client(file: &VmFile, has_far: bool) -> Result<Option<CheckedClient>, PathError> {
    let Some(line) = &file.client else {
        if file.server.is_some() || !file.metrics.is_empty() {
            return Err(missing("client", "the command whose figures are judged"));
        }
        return Ok(None);
    };
    if file.server.is_some() && !has_far {
        let remedy = "give the guest two cards: far-address = \"…\"";
        return Err(invalid("server needs a far side to run at", remedy));
    }
    let server = file.far_address.or(file.ping).map(|address| address.to_string());
    let adapters::Client { line, adapter, .. } = adapters::client(line, server.as_deref());
    let adapter = adapter.and_then(adapters::ready_made).filter(|_| file.metrics.is_empty());
    let mut figures: Vec<Figure> = Vec::new();
    for text in &file.metrics {
        let figure: Figure = text.parse().map_err(|error| {
            let why = host::text::chain(&error as &dyn std::error::Error);
            invalid(format!("metrics: {why}"), "write NAME=SOURCE lower|higher")
        })?;
        if figures.iter().any(|other| other.name == figure.name) {
            return Err(invalid(format!("two metrics are named {}", figure.name), "rename one"));
        }
        figures.push(figure);
    }
    let of_adapter = adapter.iter().flat_map(|adapter| &adapter.figures);
    let of_adapter = of_adapter.filter(|figure| !is_event_count(&figure.name));
    let judged = of_adapter.take(JUDGED_OF_ADAPTER).chain(&figures);
    let mut judged: Vec<String> = judged.map(|figure| figure.name.clone()).collect();
    if judged.is_empty() {
        judged.push("client_wall_ns".into());
    }
    judged.push("cpu_ns_per_packet".into());
    Ok(Some(CheckedClient { line, server: file.server.clone(), adapter, figures, judged }))
}

fn checked_arms(file: &VmFile, folder: &Path) -> Result<Vec<CheckedArm>, PathError> {
    let mut arms: Vec<CheckedArm> = Vec::new();
    for arm in &file.arm {
        // A name is part of a file's, too.
        let is_valid = !arm.name.trim().is_empty()
            && !arm.name.chars().any(|c| host::text::is_hidden(c) || ",+/".contains(c));
        if !is_valid {
            let what = format!("{:?} is not a name of an arm", arm.name);
            return Err(invalid(
                what,
                "give one without commas, plus signs, slashes and line breaks",
            ));
        }
        let is_control = arms.first().is_some_and(|first| arm.name == control_name(&first.name));
        if is_control || arms.iter().any(|other| other.name == arm.name) {
            return Err(invalid(format!("two arms are named {}", arm.name), "rename one"));
        }
        let complete = file.complete(arm);
        arms.push(checked_arm(file, &complete, folder).map_err(|error| match error {
            PathError::Invalid { what, remedy } => {
                invalid(format!("arm {}: {what}", arm.name), remedy)
            }
            other => other,
        })?);
    }
    if arms.len() < 2 {
        return Err(invalid("nothing to compare", "describe two machines, each by an [[arm]]"));
    }
    Ok(arms)
}

/// Name of the arm that runs the baseline a second time.
pub(crate) fn control_name(baseline: &str) -> String {
    format!("{baseline} again")
}

fn checked_arm(file: &VmFile, arm: &VmArm, folder: &Path) -> Result<CheckedArm, PathError> {
    let image = arm.image.as_ref().map(|image| folder.join(image));
    let monitor = match (&arm.command, &image) {
        (Some(_), _) if arm.qemu.is_some() || arm.machine.is_some() || arm.emulator.is_some() => {
            let remedy = "give command, or qemu, machine and emulator";
            return Err(invalid("command takes the place of QEMU", remedy));
        }
        (Some(command), image) => {
            if let Some(image) = image.as_ref().filter(|image| !image.is_file()) {
                let remedy = "correct its name, which is relative to the file's folder";
                return Err(invalid(format!("image {} is missing", image.display()), remedy));
            }
            Monitor::Other(command.clone())
        }
        (None, None) => return Err(missing("image", "the kernel that the machine boots")),
        (None, Some(image)) => Monitor::Qemu(checked_qemu(arm, image)?),
    };
    let cards = arm.cards.unwrap_or(if file.far_address.is_some() { 2 } else { 1 });
    if !(1..=2).contains(&cards) {
        return Err(invalid(format!("cards = {cards}"), "give 1 or 2"));
    }
    let first = arm.mac.as_deref().map_or(Ok(MAC), parse_mac)?;
    let [.., last] = first;
    let mut second = first;
    second[5] = last.wrapping_add(1);
    let macs = [first, second][..usize::from(cards)].to_vec();
    // Only ELF images with their sections say it.
    let size = image.as_deref().map(ImageSize::read).and_then(Result::ok);
    Ok(CheckedArm {
        name: arm.name.clone(),
        monitor,
        image,
        append: arm.append.clone(),
        text_bytes: size.map(|size| size.text_bytes),
        macs,
    })
}

fn checked_qemu(arm: &VmArm, image: &Path) -> Result<Qemu, PathError> {
    let (emulator, architecture) = match &arm.emulator {
        Some(emulator) => {
            if !image.is_file() {
                let remedy = "correct its name, which is relative to the file's folder";
                return Err(invalid(format!("image {} is missing", image.display()), remedy));
            }
            (emulator.clone(), Architecture::from_emulator(emulator))
        }
        None => {
            let architecture = read_architecture(image)?;
            (architecture.emulator().to_owned(), Some(architecture))
        }
    };
    if architecture.is_none() && (arm.machine.is_none() || arm.card.is_none()) {
        let remedy = "add machine = \"…\" (its -M) and card = \"…\" (a model of `-device help`)";
        return Err(invalid(format!("machine and card of {emulator} are not known"), remedy));
    }
    Ok(Qemu {
        emulator,
        architecture,
        machine: arm.machine.clone(),
        card: arm.card.clone(),
        options: arm.qemu.clone().unwrap_or_default(),
    })
}

fn parse_mac(text: &str) -> Result<Mac, PathError> {
    let bytes: Option<Vec<u8>> = text
        .split(':')
        .map(|part| u8::from_str_radix(part, 16).ok().filter(|_| part.len() == 2))
        .collect();
    let mac: Option<Mac> = bytes.and_then(|bytes| bytes.try_into().ok());
    // The lowest bit of the first byte is that of groups.
    mac.filter(|mac| mac[0] & 1 == 0).ok_or_else(|| {
        invalid(format!("mac: {text:?} is not an address of a card"), "write 52:54:00:12:34:56")
    })
}

impl CheckedVm {
    /// Descriptions of its loads, the default first. They are never freed, as those of other paths: descriptions of
    /// loads are static texts everywhere, and a process reads one file.
    pub(crate) fn kinds(&self) -> &'static [LoadKind] {
        let mut kinds = VmLoad::KINDS.to_vec();
        match &self.client {
            None => kinds.retain(|kind| kind.name != VmLoad::Client.name()),
            Some(client) => {
                let judged = client.judged.iter().map(|name| &*name.clone().leak());
                let judged: Vec<&'static str> = judged.collect();
                for kind in kinds.iter_mut().filter(|kind| kind.name == VmLoad::Client.name()) {
                    kind.judged = judged.clone().leak();
                }
            }
        }
        if let Some(load) = self.load {
            kinds.sort_by_key(|kind| kind.name != load.name());
        }
        kinds.leak()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let mut arm = b"\x7fELF".to_vec();
            arm.resize(64, 0);
            arm[18] = 183;
            std::fs::write(folder.path().join("arm.elf"), &arm).unwrap();
            arm[18] = 62;
            std::fs::write(folder.path().join("pc.elf"), &arm).unwrap();
            Folder(folder)
        }

        fn check(&self, text: &str) -> Result<CheckedVm, String> {
            let name = self.0.path().join("vm.toml");
            check(&PathFile { name, text: text.into() }).map_err(|error| error.to_string())
        }
    }

    const TWO: &str = "ping = '192.168.1.2'\nimage = 'arm.elf'\nqemu = '-smp 4'\n[[arm]]\nname = 'before'\n\
                       [[arm]]\nname = 'after'\nqemu = '-m 2G'\nappend = 'quiet'\n";

    #[test]
    fn what_stands_above_the_arms_is_of_all_that_have_none_of_their_own() {
        let folder = Folder::new();
        let vm = folder.check(TWO).unwrap();
        assert_eq!((vm.near, vm.arms.len()), (Ipv4Addr::new(192, 168, 1, 254), 2));
        let options = |arm: &CheckedArm| match &arm.monitor {
            Monitor::Qemu(qemu) => (qemu.emulator.clone(), qemu.options.clone()),
            Monitor::Other(_) => panic!("QEMU"),
        };
        assert_eq!(options(&vm.arms[0]), ("qemu-system-aarch64".into(), "-smp 4".into()));
        assert_eq!(options(&vm.arms[1]), ("qemu-system-aarch64".into(), "-m 2G".into()));
        assert_eq!(vm.arms[1].append.as_deref(), Some("quiet"));
        assert_eq!(vm.arms[0].image, Some(folder.0.path().join("arm.elf")));
        assert_eq!(vm.kinds()[0].name, "ping");
        assert!(vm.kinds().iter().all(|kind| kind.name != "client"));
    }

    #[test]
    fn an_arm_may_have_another_monitor_than_the_others() {
        let more = "[[arm]]\nname = 'x86'\nimage = 'pc.elf'\n[[arm]]\nname = 'own'\ncommand = 'vmm {tap}'\n";
        let vm = Folder::new().check(&format!("{TWO}{more}")).unwrap();
        assert!(
            matches!(&vm.arms[2].monitor, Monitor::Qemu(q) if q.emulator == "qemu-system-x86_64")
        );
        assert!(matches!(&vm.arms[3].monitor, Monitor::Other(line) if line == "vmm {tap}"));
    }

    #[test]
    fn a_client_through_two_cards_is_judged_by_the_figures_of_its_adapter() {
        let above = "load = 'client'\nclient = 'iperf3 -c $WIREPATH_FAR'\nserver = 'iperf3 -s'\n\
                     near-address = '10.0.0.1'\nfar-address = '10.1.0.1'\n";
        let vm = Folder::new().check(&TWO.replace("ping = '192.168.1.2'\n", above)).unwrap();
        assert_eq!((vm.guest, vm.arms[0].macs.len()), (Ipv4Addr::new(10, 1, 0, 1), 2));
        let first = vm.kinds()[0];
        assert_eq!(first.name, "client");
        assert!(first.judged.iter().any(|name| name.ends_with("_bps")), "{:?}", first.judged);
        assert!(vm.client.unwrap().line.contains("-J"), "the adapter's argument");
    }

    #[test]
    fn each_mistake_is_named_with_its_remedy() {
        let folder = Folder::new();
        for (from, to, what, remedy) in [
            ("ping = '192.168.1.2'\n", "", "ping is missing", "ping = \"192.168.1.2\""),
            ("ping =", "pong =", "line 1: unknown field `pong`", "schema prove vm file"),
            ("'after'", "'before'", "two arms are named before", "rename"),
            ("'after'", "'before again'", "two arms are named before again", "rename"),
            ("'after'", "'a,b'", "not a name of an arm", "without commas"),
            ("arm.elf", "no.elf", "arm before: image", "relative to the folder"),
            ("image = 'arm.elf'\n", "", "arm before: image is missing", "the kernel"),
            ("'-smp 4'\n", "'-smp 4'\nload = 'pin'\n", "'pin' is not a load", "ping"),
            ("'-smp 4'\n", "'-smp 4'\nload = 'client'\n", "client is missing", "load client"),
            ("'-smp 4'\n", "'-smp 4'\nready = 'tcp:80'\n", "of a program on this host", "line:"),
            ("'-smp 4'\n", "'-smp 4'\nready = 'line:('\n", "regular expression", "line:"),
            ("'-smp 4'\n", "'-smp 4'\nready-within = '2d'\n", "not a time", "1m30s"),
            ("'-smp 4'\n", "'-smp 4'\noutside = 'all'\n", "outside", "trace or no"),
            ("'-smp 4'\n", "'-smp 4'\nmac = '01:00:00:00:00:00'\n", "mac", "52:54"),
            ("'-smp 4'\n", "'-smp 4'\ncards = 3\n", "cards = 3", "1 or 2"),
            ("'-smp 4'\n", "'-smp 4'\ncards = 2\n", "far-address is missing", "second card"),
            ("'-smp 4'\n", "'-smp 4'\nemulator = 'qemu-system-riscv64'\n", "not known", "machine"),
            ("'-smp 4'\n", "'-smp 4'\nclient = 'x'\nserver = 'y'\n", "far side", "two cards"),
            ("'-smp 4'\n", "'-smp 4'\nnear-address = '192.168.1.2'\n", "the guest's", "own"),
            ("append = 'quiet'\n", "command = 'x'\n", "takes the place of QEMU", "or qemu"),
        ] {
            let said = folder.check(&TWO.replacen(from, to, 1)).unwrap_err();
            assert!(said.contains(what) && said.contains(remedy), "{to}: {said}");
        }
        let said = folder.check("ping = '10.0.0.2'\nimage = 'arm.elf'\n[[arm]]\nname = 'a'\n");
        assert!(said.unwrap_err().contains("two machines"));
    }
}
