//! Builds the guest's image and runs it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use wirepath_paths::vmnic::vmm::{
    self, MonitorError, Outcome, Receiver, Running, Sender, Spec, Switches, Task,
};

pub(crate) const MAC: [u8; 6] = [0x02, b'w', b'p', 0, 0, 9];
const RAM_BYTES: usize = 32 << 20;
/// Far more than any guest of these tests takes; a guard against one that hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The image, built once from this source tree.
pub(crate) fn image() -> &'static [u8] {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest-x86");
        let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("guest-x86");
        let status = Command::new(env!("CARGO"))
            .args(["build", "--release", "--quiet", "--target-dir"])
            .arg(&target)
            // It reads its own configuration from its folder, and none of ours.
            .current_dir(folder)
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .status()
            .expect("cargo runs");
        assert!(
            status.success(),
            "the guest cannot be built: `rustup target add x86_64-unknown-none`"
        );
        std::fs::read(target.join("x86_64-unknown-none/release/nettest")).expect("it was built")
    })
}

/// Starts a guest; `None`, with the reason on stderr, where there is no KVM.
pub(crate) fn start(
    task: Task,
    switches: Switches,
    sender: Box<dyn Sender>,
    receiver: Box<dyn Receiver>,
) -> Option<Running> {
    start_image(image(), task, switches, sender, receiver)
}

/// As [`start`], of another image.
#[allow(clippy::print_stderr, reason = "a test that is skipped says why")]
pub(crate) fn start_image(
    image: &[u8],
    task: Task,
    switches: Switches,
    sender: Box<dyn Sender>,
    receiver: Box<dyn Receiver>,
) -> Option<Running> {
    let spec = Spec { image, ram_bytes: RAM_BYTES, mac: MAC, task, switches };
    match vmm::start(&spec, sender, receiver) {
        Ok(running) => Some(running),
        Err(MonitorError::Kvm(
            error @ (host::kvm::KvmError::Device(_) | host::kvm::KvmError::Missing { .. }),
        )) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
    }
}

/// Runs a guest until it is done.
pub(crate) fn run(
    task: Task,
    switches: Switches,
    sender: Box<dyn Sender>,
    receiver: Box<dyn Receiver>,
) -> Option<Outcome> {
    let running = start(task, switches, sender, receiver)?;
    running.wait(PATIENCE);
    Some(running.stop().expect("the monitor runs to its end"))
}
