//! Machines of several monitors under each load.

#[path = "../../tests/kernel-c/mod.rs"]
mod kernel_c;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use model::{Arm, Load, Measurement, Path as _, PathError, PathFile, Session, Support};
use testkit::is_installed;
use wirepath_vm_prove::Vm;

static RUNS: AtomicBool = AtomicBool::new(false);
/// Arms of the small kernel that take its two changes apart.
const DECOMPOSED: [&str; 4] = ["poll-print", "poll", "async-print", "async"];
const SMALL_KERNEL: &str = "ping = '192.168.1.2'\nready = 'line:Net ready'\n";

/// An experiment whose session is open, and the folder of its file.
struct Opened {
    arms: Vec<Arm>,
    session: Box<dyn Session>,
    folder: tempfile::TempDir,
}

impl Opened {
    fn new(text: &str, load: &str, trial: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = PathFile { name: folder.path().join("vm.toml"), text: text.into() };
        let path = Vm::new(&RUNS).configured(&file).unwrap();
        let kind = path.loads().iter().find(|kind| kind.name == load).expect("a load");
        let load = Load {
            kind: load.into(),
            size_bytes: kind.size_bytes,
            rate_pps: kind.rate_pps,
            trial,
            ipv6: false,
            vlan_tag: None,
            wire: None,
            far: None,
        };
        let arms = path.arms();
        for arm in &arms {
            assert_eq!(path.support(arm, &load), Support::Yes, "{}", arm.name);
        }
        Opened { arms, session: path.open(&load).unwrap(), folder }
    }

    fn try_trial(&mut self, name: &str) -> Result<Measurement, PathError> {
        let arm = self.arms.iter().find(|arm| arm.name == name).expect("an arm").clone();
        self.session.trial(&arm)
    }

    fn trial(&mut self, name: &str) -> Measurement {
        let m = self.try_trial(name);
        m.unwrap_or_else(|error| panic!("{name}: {}", host::text::chain(&error)))
    }
}

/// A file whose arms are images of the small kernel, below what it begins with. `None` if they cannot be built or run.
#[track_caller]
fn kernels(above: &str, images: &[&str]) -> Option<String> {
    if !is_installed("qemu-system-aarch64") {
        return None;
    }
    let mut text = above.to_owned();
    for name in images {
        let image = kernel_c::image(name)?;
        text += &format!("[[arm]]\nname = '{name}'\nimage = '{}'\n", image.display());
    }
    Some(text)
}

fn value(m: &Measurement, name: &str) -> f64 {
    let metrics = m.metrics();
    let metric = metrics.iter().find(|metric| metric.name == name);
    let metric = metric.unwrap_or_else(|| panic!("no {name} in {metrics:#?}"));
    *metric.value.as_ref().unwrap_or_else(|why| panic!("{name}: {why}"))
}

/// The two changes of the small kernel are arms of their own, so that a run says which was the gain.
#[test]
fn two_changes_are_taken_apart_and_no_ping_is_lost() {
    let above = format!("{SMALL_KERNEL}outside = 'trace'\ntimeline = 'trace'\n");
    let Some(text) = kernels(&above, &DECOMPOSED) else { return };
    let mut opened = Opened::new(&text, "ping", Duration::from_millis(490));
    assert_eq!(opened.arms[1].name, "poll-print again");
    for (name, prints) in DECOMPOSED.iter().zip([true, false, true, false]) {
        let m = opened.trial(name);
        assert_eq!((value(&m, "lost_count"), m.counters["sent_count"]), (0.0, 10), "{name}");
        assert!(m.start.is_some(), "machines stay from trial to trial");
        for metric in ["rtt_ns_min", "rtt_ns_mean", "rtt_ns_max", "cpu_ns_per_packet"] {
            assert!(value(&m, metric) > 0.0, "{name}: {metric}");
        }
        assert!(value(&m, "image_text_bytes") > 1000.0);
        let characters = value(&m, "console_characters_per_packet");
        assert_eq!(characters > 50.0, prints, "{name}: {characters} characters a packet");
        // Of QEMU's own events: the guest's answers are half of its packets.
        assert_eq!(value(&m, "outside_frames_from_guest_count"), 10.0, "{name}");
        assert!(
            value(&m, "doorbells_per_packet") > 0.0 && value(&m, "vcpu_cpu_ns_per_packet") > 0.0
        );
        assert!(m.segments.contains_key("given_to_doorbell"), "{:?}", m.segments.keys());
        let timeline = opened.folder.path().join(format!("trace-{name}.json"));
        assert!(std::fs::read_to_string(timeline).unwrap().contains("traceEvents"));
    }
    let (first, second) = (opened.trial("async").start, opened.trial("async").start);
    assert_eq!(first, second, "one start serves several trials");
}

#[test]
fn every_load_of_pings_has_its_figures() {
    let Some(text) = kernels(SMALL_KERNEL, &["async", "poll"]) else { return };
    let mut closed = Opened::new(&text, "back-to-back", Duration::from_millis(100));
    let m = closed.trial("async");
    assert!(value(&m, "lost_count") == 0.0 && value(&m, "rtt_ns_p50") > 0.0);
    assert!(m.counters["sent_count"] > 10, "{:?}", m.counters);
    let mut flood = Opened::new(&text, "flood", Duration::from_millis(100));
    let m = flood.trial("async");
    assert!(value(&m, "received_pps") > 0.0 && value(&m, "cpu_ns_per_packet") > 0.0);
    let mut start = Opened::new(&text, "start", Duration::from_millis(1));
    let m = start.trial("async");
    assert!(value(&m, "start_ns_mean") > 1e6);
}

#[test]
fn start_finds_the_planted_race() {
    let above = "ping = '192.168.1.2'\nready-within = '3s'\n";
    let Some(text) = kernels(above, &["race-fixed", "race"]) else { return };
    let mut opened = Opened::new(&text, "start", Duration::from_millis(1));
    for _ in 0..3 {
        opened.trial("race-fixed");
    }
    let failed = (0..3).filter_map(|_| opened.try_trial("race").err()).collect::<Vec<_>>();
    assert!(!failed.is_empty(), "its mistake shows under traffic in most starts");
    let said = host::text::chain(&failed[0]);
    assert!(said.contains("race: its guest") && said.contains("net: "), "its console: {said}");
}

#[test]
fn guest_that_never_answers_fails_with_the_last_lines_of_its_console() {
    // The guest has another address.
    let above = "ping = '192.168.1.77'\nready-within = '2s'\n";
    let Some(text) = kernels(above, &["async", "poll"]) else { return };
    let error = Opened::new(&text, "ping", Duration::from_millis(100)).try_trial("async");
    let said = host::text::chain(&error.unwrap_err());
    assert!(said.contains("async: its guest did not answer within 2000 ms"), "{said}");
    assert!(said.contains("Net ready") && !said.contains('\n'), "{said}");
}

#[test]
fn option_that_qemu_refuses_fails_with_its_words() {
    let above = "ping = '192.168.1.2'\nqemu = '-smp nonsense'\n";
    let Some(text) = kernels(above, &["async", "poll"]) else { return };
    let error = Opened::new(&text, "ping", Duration::from_millis(100)).try_trial("async");
    let said = host::text::chain(&error.unwrap_err());
    assert!(said.contains("async") && said.contains("expects integer"), "{said}");
}

/// A monitor that joins its two cards, as a guest that forwards frames would: the command, its placeholders, the far
/// side, and the client's figures.
#[test]
fn client_and_server_meet_through_two_cards_of_another_monitor() {
    if !is_installed("socat") || !is_installed("iperf3") {
        return;
    }
    let ends = ["{tap}", "{tap2}"].map(|tap| format!("TUN,tun-type=tap,tun-name={tap},iff-no-pi"));
    let [one, other] = &ends;
    let text = format!(
        "near-address = '10.9.0.1'\nfar-address = '10.9.0.2'\nserver = 'iperf3 -s'\n\
         client = 'iperf3 -c $WIREPATH_FAR -t 1'\ncommand = 'exec socat {one} {other}'\n\
         [[arm]]\nname = 'plain'\n[[arm]]\nname = 'small'\ncommand = 'exec socat -b 2000 {one} {other}'\n"
    );
    let mut opened = Opened::new(&text, "client", Duration::from_secs(1));
    for name in ["plain", "small"] {
        let m = opened.trial(name);
        assert!(value(&m, "goodput_bps") > 0.0, "{name}");
        assert!(m.packet_count > Some(100) && value(&m, "cpu_ns_per_packet") > 0.0, "{m:?}");
    }
    let mut pings = Opened::new(&text, "back-to-back", Duration::from_millis(50));
    assert_eq!(value(&pings.trial("plain"), "lost_count"), 0.0);
}

/// The project's own firmware, as any other image: its switches are words of the command line.
#[test]
fn firmware_is_an_image_like_any_other() {
    let built =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/firmware/wirepath-guest-virt.elf");
    let image = std::env::var_os("WIREPATH_GUEST_IMAGE").map_or(built, PathBuf::from);
    if !image.is_file() {
        return testkit::skip("aarch64", "no image of the firmware: cargo xtask firmware");
    }
    if !is_installed("qemu-system-aarch64") {
        return;
    }
    let words = "ip=10.0.0.2 wirepath.switches=";
    let text = format!(
        "ping = '10.0.0.2'\nready = 'line:wirepath-guest ready'\nimage = '{}'\noutside = 'no'\n\
         qemu = '-m 64 -global virtio-mmio.force-legacy=false'\n\
         [[arm]]\nname = 'baseline'\nappend = '{words}'\n\
         [[arm]]\nname = 'quiet and async'\nappend = '{words}quiet,async-tx'\n",
        image.display()
    );
    let mut opened = Opened::new(&text, "back-to-back", Duration::from_millis(200));
    let [before, after] = ["baseline", "quiet and async"].map(|name| opened.trial(name));
    for m in [&before, &after] {
        assert_eq!(value(m, "lost_count"), 0.0);
    }
    let printed = |m| value(m, "console_characters_per_packet");
    assert!(printed(&before) > 10.0 && printed(&after) == 0.0);
}

/// Script that makes the rig's guest a router. Its shell is the test's own.
const ROUTER: &str = "ip addr add 10.9.0.2/24 dev eth0\nip addr add 10.9.1.2/24 dev eth1\n\
                      ip link set eth0 up\nip link set eth1 up\necho 1 >/proc/sys/net/ipv4/ip_forward\n";

/// The files of `cargo xtask linux-guest`.
fn linux_guest() -> Option<[PathBuf; 2]> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/firmware/linux");
    let folder = std::env::var_os("WIREPATH_LINUX_GUEST").map_or(built, PathBuf::from);
    let files = ["bzImage", "rig.cpio"].map(|name| folder.join(name));
    if files.iter().all(|file| file.is_file()) {
        return Some(files);
    }
    testkit::skip("linux-guest", "no guest: cargo xtask linux-guest");
    None
}

/// Emulated: under a nested KVM its kernel may not even unpack itself.
#[test]
fn linux_guest_routes_between_its_two_cards() {
    let programs = ["qemu-system-x86_64", "iperf3"];
    if !programs.iter().all(|program| is_installed(program)) {
        return;
    }
    let Some([kernel, initrd]) = linux_guest() else { return };
    let share = tempfile::tempdir().unwrap();
    let shell = share.path().join("root/usr/bin/sh");
    std::fs::create_dir_all(shell.parent().unwrap()).unwrap();
    std::fs::write(&shell, "#!/bin/busybox sh\n. \"$1\"\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&shell, executable).unwrap();
    std::fs::write(share.path().join("run.0"), ROUTER).unwrap();
    let text = format!(
        "near-address = '10.9.0.1'\ngateway = '10.9.0.2'\nfar-address = '10.9.1.1'\nfar-gateway = '10.9.1.2'\n\
         ready-within = '300s'\nserver = 'iperf3 -s'\n\
         client = 'iperf3 -c $WIREPATH_FAR -t 1'\nimage = '{}'\nappend = 'console=ttyS0 quiet'\n\
         qemu = '-accel tcg -cpu Nehalem -m 512 -initrd {} -virtfs local,path={},mount_tag=wirepath,security_model=none'\n\
         [[arm]]\nname = 'virtio-net'\n[[arm]]\nname = 'e1000e'\ncard = 'e1000e,romfile='\n",
        kernel.display(),
        initrd.display(),
        share.path().display()
    );
    let mut opened = Opened::new(&text, "client", Duration::from_secs(1));
    for name in ["virtio-net", "e1000e"] {
        let m = opened.trial(name);
        assert!(value(&m, "goodput_bps") > 0.0, "{name}");
        assert!(value(&m, "vcpu_cpu_ns_per_packet") > 0.0, "{:?}", m.mode);
    }
}
