//! The path.

use std::fmt;
use std::path::{Path as FilePath, PathBuf};
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use model::{
    Arm, ArmKind, Load, LoadKind, LoadWords, Path, PathError, PathFile, PathLoad, Session, Support,
    SwitchId, SwitchSet, SwitchSpec,
};

use crate::check::{CheckedVm, Monitor, check, control_name};
use crate::command_line::TAPS;
use crate::echo::PAYLOAD_BYTES_MAX;
use crate::error::invalid;
use crate::loads::VmLoad;
use crate::session::{VmSession, file_arm};

/// Virtual machines of the user.
#[derive(Clone)]
pub struct Vm {
    stop: &'static AtomicBool,
    /// `None` before a file is read.
    configured: Option<Configured>,
}

#[derive(Clone)]
struct Configured {
    vm: Rc<CheckedVm>,
    loads: &'static [LoadKind],
}

impl fmt::Debug for Vm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vm").field("is_configured", &self.configured.is_some()).finish()
    }
}

impl Vm {
    /// The path without a file, which has loads and no arms.
    ///
    /// - `stop`: ends a trial under way early.
    pub fn new(stop: &'static AtomicBool) -> Self {
        Vm { stop, configured: None }
    }

    fn vm(&self) -> Result<&Rc<CheckedVm>, PathError> {
        let configured = self.configured.as_ref().ok_or_else(|| {
            invalid("path vm needs a file that describes the machines", "wirepath prove vm FILE")
        })?;
        Ok(&configured.vm)
    }
}

impl Path for Vm {
    fn name(&self) -> &'static str {
        "vm"
    }

    fn what(&self) -> &'static str {
        "your own virtual machines: kernels, options of QEMU or other monitors, described by a file"
    }

    fn switches(&self) -> &'static [SwitchSpec] {
        &[]
    }

    fn ladder(&self, _load: &Load) -> Vec<SwitchId> {
        Vec::new()
    }

    fn loads(&self) -> &'static [LoadKind] {
        self.configured.as_ref().map_or(VmLoad::KINDS, |configured| configured.loads)
    }

    fn load_words(&self, load: &Load) -> LoadWords {
        let noun = match VmLoad::parse(load) {
            Ok(VmLoad::Ping | VmLoad::BackToBack) => "ping",
            Ok(VmLoad::Start) => "start",
            _ => "",
        };
        LoadWords { noun, baseline: "" }
    }

    fn support(&self, arm: &Arm, _load: &Load) -> Support {
        let vm = match self.vm() {
            Ok(vm) => vm,
            Err(error) => return Support::Refused { why: error.to_string() },
        };
        if let Err(why) = tried_tap() {
            let needs = "CAP_SYS_ADMIN and CAP_NET_ADMIN: run it as root";
            let what = format!("a TAP interface in a namespace ({why})");
            return Support::unsupported(what, needs);
        }
        let Monitor::Qemu(qemu) = &file_arm(vm, arm).monitor else { return Support::Yes };
        if is_installed(&vm.folder, &qemu.emulator) {
            return Support::Yes;
        }
        let what = format!("arm {} without {}", arm.name, qemu.emulator);
        Support::unsupported(what, install(&qemu.emulator))
    }

    fn open(&self, load: &Load) -> Result<Box<dyn Session>, PathError> {
        let vm = self.vm()?;
        let kind = VmLoad::parse(load)?;
        if load.far.is_some() {
            return Err(invalid("the machines run on this host", "omit --far"));
        }
        if load.size_bytes > PAYLOAD_BYTES_MAX {
            let what = format!("a payload of {} bytes", load.size_bytes);
            return Err(invalid(what, format!("give --size of at most {PAYLOAD_BYTES_MAX}")));
        }
        Ok(Box::new(VmSession::open(Rc::clone(vm), load, kind, self.stop)?))
    }

    fn configured(&self, file: &PathFile) -> Result<Box<dyn Path>, PathError> {
        let vm = check(file)?;
        let loads = vm.kinds();
        let configured = Some(Configured { vm: Rc::new(vm), loads });
        Ok(Box::new(Vm { stop: self.stop, configured }))
    }

    fn arms(&self) -> Vec<Arm> {
        let Ok(vm) = self.vm() else { return Vec::new() };
        let base = &vm.arms[0].name;
        let control = (control_name(base), ArmKind::Control);
        let variants = vm.arms[1..].iter().map(|arm| (arm.name.clone(), ArmKind::Variant));
        let arms = [(base.clone(), ArmKind::Baseline), control].into_iter().chain(variants);
        arms.map(|(name, kind)| Arm { name, kind, switches: SwitchSet::default() }).collect()
    }
}

fn tried_tap() -> &'static Result<(), String> {
    static TRIED: OnceLock<Result<(), String>> = OnceLock::new();
    TRIED.get_or_init(|| {
        let tried = lab::TapPort::new(TAPS[0]).map(drop);
        tried.map_err(|error| host::text::chain(&error))
    })
}

/// True if a program is in the search path, or is a file of that name.
fn is_installed(folder: &FilePath, program: &str) -> bool {
    if program.contains('/') {
        return folder.join(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder: PathBuf| folder.join(program).is_file())
}

/// Debian's package of an emulator.
fn install(emulator: &str) -> String {
    let package = match emulator {
        "qemu-system-aarch64" | "qemu-system-arm" => "qemu-system-arm",
        "qemu-system-x86_64" | "qemu-system-i386" => "qemu-system-x86",
        _ => "qemu-system",
    };
    format!("apt-get install {package}")
}
