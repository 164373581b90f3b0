//! Capabilities that a command drops once it has opened the resources that need them.

use std::io;
#[cfg(target_arch = "x86_64")]
use std::sync::LazyLock;

use host::text::chain;
use remote::Failure;
use sys::capability::{self, Capability};
#[cfg(target_arch = "x86_64")]
use sys::seccomp::Confinement;
use sys::user_namespace;

/// A command's use of network namespaces of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabUse {
    /// It makes none, or works on interfaces and namespaces that exist.
    None,
    /// It reports whether it could make some.
    Tried,
    /// It cannot run without.
    Needed,
}

/// Gives this process the rights to make a lab: those that it has, or those of a user namespace of its own. To be called
/// before any thread is started.
///
/// Errors: it has neither, with the cause and the remedy.
pub fn for_lab(lab: LabUse) -> Result<(), Failure> {
    let missing = capability::missing(&[Capability::SysAdmin, Capability::NetAdmin]);
    let Some(missing) = missing.filter(|_| lab != LabUse::None) else { return Ok(()) };
    match user_namespace::enter() {
        Err(error) if lab == LabUse::Needed => Err(Failure::Unsupported(format!(
            "a lab needs {missing}, and {}; {}; or run as root, or grant them: sudo setcap \
             cap_sys_admin,cap_net_admin,cap_net_raw+ep \"$(command -v wirepath)\"",
            chain(&error),
            error.barrier.remedy(),
        ))),
        _ => Ok(()),
    }
}

/// Sets `no_new_privs`, so that no child gains privileges from its file or its owner. Skipped for
/// commands that start other programs, some of them chosen by the user.
pub fn restrict(starts_programs: bool) -> Result<(), Failure> {
    if starts_programs {
        return Ok(());
    }
    capability::no_new_privileges().map_err(|e| Failure::failed(refused(&e)))
}

pub fn drop_all() -> Result<(), String> {
    keep_only(&[])
}

/// Drops all capabilities of the calling thread except `kept`.
pub fn keep_only(kept: &[Capability]) -> Result<(), String> {
    capability::keep(kept).map_err(|e| refused(&e))
}

/// Takes system calls from a thread that answers requests from memory.
pub fn confine_pages() -> io::Result<()> {
    #[cfg(target_arch = "x86_64")]
    {
        static FILTER: LazyLock<io::Result<Confinement>> = LazyLock::new(Confinement::of_pages);
        enter(&FILTER)?;
    }
    Ok(())
}

/// Takes system calls from a thread that answers requests from stored results.
pub fn confine_stored_pages() -> io::Result<()> {
    #[cfg(target_arch = "x86_64")]
    {
        static FILTER: LazyLock<io::Result<Confinement>> =
            LazyLock::new(Confinement::of_stored_pages);
        enter(&FILTER)?;
    }
    Ok(())
}

/// A filter is compiled once, not for each connection.
#[cfg(target_arch = "x86_64")]
fn enter(filter: &io::Result<Confinement>) -> io::Result<()> {
    match filter {
        Ok(filter) => filter.enter(),
        Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
    }
}

fn refused(error: &io::Error) -> String {
    format!("cannot drop privileges: {}", chain(error))
}
