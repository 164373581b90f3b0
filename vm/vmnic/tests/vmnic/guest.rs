//! Builds the guest's image and runs it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use testkit::skip;
use vmm::{self, GuestOutcome, GuestTask, Halves, Receiver, Running, Sender, Spec, Switches};

pub(crate) const MAC: [u8; 6] = [0x02, b'w', b'p', 0, 0, 9];
const RAM_BYTES: usize = 32 << 20;
/// All switches of the Lance.
pub(crate) const LANCE: Switches = Switches {
    virtio_net: false,
    event_idx: false,
    packed_ring: false,
    guest_umem: false,
    ..Switches::ALL
};
/// Far more than any guest of these tests takes; a guard against one that hangs.
pub(crate) const GUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The image, built once from this source tree; else, without a compiler for it, one that
/// was built before; else nothing, with the reason on stderr.
pub(crate) fn image() -> Option<&'static [u8]> {
    static IMAGE: OnceLock<Result<Vec<u8>, String>> = OnceLock::new();
    let image = IMAGE.get_or_init(|| {
        build().or_else(|why| {
            wirepath_vmnic::image::load().map_err(|error| format!("{why}, and {error}"))
        })
    });
    image.as_deref().inspect_err(|why| skip("nettest", why)).ok()
}

/// Puts the image where the path looks for it first: beside this executable.
pub(crate) fn image_beside_us() -> Option<()> {
    static PUT: OnceLock<()> = OnceLock::new();
    let image = image()?;
    PUT.get_or_init(|| {
        let executable = std::env::current_exe().unwrap();
        let folder = executable.parent().unwrap();
        // Written whole, then named: another run of the tests may be reading it.
        let partial = folder.join(format!("nettest.{}", std::process::id()));
        std::fs::write(&partial, image).unwrap();
        std::fs::rename(partial, folder.join("wirepath-vmnic-nettest.elf")).unwrap();
    });
    Some(())
}

fn build() -> Result<Vec<u8>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../firmware-x86");
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("firmware-x86");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "--locked", "--target-dir"])
        .arg(&target)
        // QEMU reads the configuration in that folder only.
        .current_dir(folder)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output()
        .map_err(|error| format!("cargo does not run ({error})"))?;
    if !built.status.success() {
        let text = String::from_utf8_lossy(&built.stderr).into_owned();
        // A guest that does not compile is a failure; a compiler that is not there is none.
        let missing = ["may not be installed", "can't find crate for `core`", "No such file"];
        assert!(missing.iter().any(|words| text.contains(words)), "{text}");
        return Err("the guest cannot be built (`rustup target add x86_64-unknown-none`)".into());
    }
    std::fs::read(target.join("x86_64-unknown-none/release/nettest")).map_err(|e| e.to_string())
}

/// Both halves of a back end, opened in the monitor's process.
pub(crate) type Opened = Result<Halves, Box<dyn std::error::Error>>;

/// A back end of two halves.
pub(crate) fn halves(sender: impl Sender + 'static, receiver: impl Receiver + 'static) -> Opened {
    Ok((Box::new(sender), Box::new(receiver)))
}

/// Starts a guest; `None`, with the reason on stderr, without KVM.
pub(crate) fn start(
    task: GuestTask,
    switches: Switches,
    open: impl FnOnce() -> Opened,
) -> Option<Running> {
    start_image(image()?, task, switches, open)
}

/// As [`start`], of another image.
pub(crate) fn start_image(
    image: &[u8],
    task: GuestTask,
    switches: Switches,
    open: impl FnOnce() -> Opened,
) -> Option<Running> {
    static MISSING: OnceLock<Option<String>> = OnceLock::new();
    let missing = MISSING.get_or_init(|| vmm::exit_cost_ns().err().map(|error| error.to_string()));
    if let Some(why) = missing {
        skip("kvm", why);
        return None;
    }
    let spec = Spec { image, ram_bytes: RAM_BYTES, mac: MAC, task, switches };
    Some(vmm::start(&spec, |_| open()).unwrap())
}

/// Runs a guest until it is done.
pub(crate) fn run(
    task: GuestTask,
    switches: Switches,
    open: impl FnOnce() -> Opened,
) -> Option<GuestOutcome> {
    let running = start(task, switches, open)?;
    running.wait(GUEST_TIMEOUT);
    Some(running.stop().expect("the monitor runs to its end").0)
}
