//! System-call filters of a thread and the threads that it starts.
//!
//! Source: kernel documentation, userspace-api/seccomp_filter.rst.

mod pages;
mod peer;

use std::io;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

/// Calls with their rules, one of which must match; without rules a call always matches.
pub(crate) type Rules = Vec<(libc::c_long, Vec<SeccompRule>)>;

/// A system-call filter, ready to install.
#[derive(Debug, Clone)]
pub struct Confinement {
    /// In the order of installation.
    programs: Vec<BpfProgram>,
}

impl Confinement {
    /// Ends the process at any call but those of `rules`.
    pub(crate) fn or_kill(rules: Rules) -> io::Result<Self> {
        let only = program(rules, SeccompAction::KillProcess, SeccompAction::Allow)?;
        Ok(Confinement { programs: vec![only] })
    }

    /// As [`Self::or_kill`], but clone3(2) does not exist, so that the C library starts threads by `clone`, whose
    /// flags a filter can read.
    pub(crate) fn or_kill_without_clone3(rules: Rules) -> io::Result<Self> {
        let clone3 = free(&[libc::SYS_clone3]);
        let missing = SeccompAction::Errno(libc::ENOSYS as u32);
        let refused = program(clone3, SeccompAction::Allow, missing)?;
        let mut allowed = rules;
        allowed.extend(free(&[libc::SYS_clone3]));
        let only = program(allowed, SeccompAction::KillProcess, SeccompAction::Allow)?;
        Ok(Confinement { programs: vec![refused, only] })
    }

    /// Confines the calling thread, irrevocably. Sets no_new_privs first, so that no program it could
    /// start has more privileges.
    pub fn enter(&self) -> io::Result<()> {
        for program in &self.programs {
            // It sets no_new_privs before the filter.
            seccompiler::apply_filter(program).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

fn program(rules: Rules, others: SeccompAction, these: SeccompAction) -> io::Result<BpfProgram> {
    let filter = SeccompFilter::new(rules.into_iter().collect(), others, these, TargetArch::x86_64);
    filter.and_then(BpfProgram::try_from).map_err(io::Error::other)
}

/// Calls allowed with any argument.
pub(crate) fn free(calls: &[libc::c_long]) -> Rules {
    calls.iter().map(|&call| (call, Vec::new())).collect()
}

/// A call whose argument at `place` is one of `values`.
pub(crate) fn one_of(
    call: libc::c_long,
    place: u8,
    values: &[u64],
) -> Result<(libc::c_long, Vec<SeccompRule>), BackendError> {
    let rule = |&value: &u64| {
        SeccompRule::new(vec![SeccompCondition::new(place, Len::Dword, Op::Eq, value)?])
    };
    Ok((call, values.iter().map(rule).collect::<Result<_, _>>()?))
}

/// A call whose argument at `place` has exactly the bits `value` of `mask`.
pub(crate) fn masked(
    call: libc::c_long,
    place: u8,
    mask: u64,
    value: u64,
) -> Result<(libc::c_long, Vec<SeccompRule>), BackendError> {
    let condition = SeccompCondition::new(place, Len::Dword, Op::MaskedEq(mask), value)?;
    Ok((call, vec![SeccompRule::new(vec![condition])?]))
}

/// Memory without execute permission.
pub(crate) fn plain_memory() -> Result<Rules, BackendError> {
    let executable = libc::PROT_EXEC as u64;
    Ok(vec![
        masked(libc::SYS_mmap, 2, executable, 0)?,
        masked(libc::SYS_mprotect, 2, executable, 0)?,
    ])
}
