//! A user namespace of this process's own, in which an unprivileged user has the capabilities that a lab needs.
//!
//! The user's id is mapped to itself, so programs see the same user outside and inside, and files get the owner that
//! they always have. Capabilities inside act on what the namespace owns: network namespaces that are made in it, and
//! nothing of the host.
//!
//! Source: user_namespaces(7), capabilities(7).

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

use thiserror::Error;

use crate::capability;
use crate::jail::Forked;

/// Reason why this host gives a process no user namespace of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserNamespaceBarrier {
    /// AppArmor takes all capabilities from a user namespace.
    AppArmor,
    /// `kernel.unprivileged_userns_clone` is 0.
    CloneSysctl,
    /// A limit of `user.max_user_namespaces` or `user.max_net_namespaces`.
    Limit {
        sysctl: &'static str,
        /// `None` if it cannot be read.
        value: Option<u64>,
    },
    /// A filter of system calls, such as that of a container.
    Seccomp,
    /// The kernel was built without user namespaces.
    Kernel,
    /// Any other refusal, such as by another security module.
    Other,
}

impl UserNamespaceBarrier {
    /// The change that lets this host give one.
    pub fn remedy(&self) -> String {
        match self {
            UserNamespaceBarrier::AppArmor => {
                "install the package wirepath, whose profile /etc/apparmor.d/wirepath allows it to \
                 /usr/bin/wirepath, or: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
                    .into()
            }
            UserNamespaceBarrier::CloneSysctl => {
                "sudo sysctl kernel.unprivileged_userns_clone=1".into()
            }
            UserNamespaceBarrier::Limit { sysctl, value } => {
                let more = value.unwrap_or(0).saturating_mul(2).max(1024);
                format!("sudo sysctl {sysctl}={more}")
            }
            UserNamespaceBarrier::Seccomp => {
                "start the container with --cap-add SYS_ADMIN --cap-add NET_ADMIN, or with \
                 --security-opt seccomp=unconfined"
                    .into()
            }
            UserNamespaceBarrier::Kernel => "a kernel with CONFIG_USER_NS".into(),
            UserNamespaceBarrier::Other => "see the log of the security module (dmesg)".into(),
        }
    }
}

impl std::fmt::Display for UserNamespaceBarrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            UserNamespaceBarrier::AppArmor => f.write_str(
                "AppArmor denies them in a user namespace (kernel.apparmor_restrict_unprivileged_userns=1)",
            ),
            UserNamespaceBarrier::CloneSysctl => {
                f.write_str("kernel.unprivileged_userns_clone=0 forbids a user namespace")
            }
            UserNamespaceBarrier::Limit { sysctl, value: Some(value) } => {
                write!(f, "{sysctl}={value} allows no further namespace")
            }
            UserNamespaceBarrier::Limit { sysctl, value: None } => {
                write!(f, "the limit {sysctl} allows no further namespace")
            }
            UserNamespaceBarrier::Seccomp => {
                f.write_str("a seccomp filter, such as that of a container, forbids a user namespace")
            }
            UserNamespaceBarrier::Kernel => f.write_str("this kernel has no user namespaces"),
            UserNamespaceBarrier::Other => f.write_str("this host forbids a user namespace"),
        }
    }
}

#[derive(Debug, Error)]
#[error("{barrier}: {step} failed")]
pub struct UserNamespaceError {
    pub barrier: UserNamespaceBarrier,
    step: &'static str,
    #[source]
    source: io::Error,
}

/// Steps into a user namespace, as errors name them.
const STEPS: [&str; 5] = [
    "unshare(CLONE_NEWUSER | CLONE_NEWNS)",
    "writing /proc/self/setgroups",
    "writing /proc/self/uid_map",
    "writing /proc/self/gid_map",
    "unshare(CLONE_NEWNET)",
];
const OWN_USER_NAMESPACE: usize = 0;
const NETWORK_NAMESPACE: usize = 4;
/// In place of a step.
const NONE_FAILED: u8 = 255;

/// Moves this process into a user namespace of its own, with all capabilities there, which programs that it starts keep
/// (the supervisor clears them for programs of the user). The process keeps its network namespace, and sees the same mounts.
///
/// The process must have one thread: namespaces of users are those of processes.
///
/// A child tries it first and makes a network namespace there, because a host may give the user namespace and deny the
/// capabilities. On an error this process is as it was.
pub fn enter() -> Result<(), UserNamespaceError> {
    let maps = Maps::for_this_user();
    tried_in_child(&maps).and_then(|()| maps.enter()).map_err(UserNamespaceError::new)?;
    capability::raise_ambient().map_err(|source| UserNamespaceError {
        barrier: UserNamespaceBarrier::Other,
        step: "keeping the capabilities for its own programs",
        source,
    })
}

impl UserNamespaceError {
    fn new((step, source): FailedStep) -> Self {
        let barrier = barrier(step, &source, &Host::read(Path::new("/proc")));
        UserNamespaceError { barrier, step: STEPS[step], source }
    }
}

/// A step of [`STEPS`], and its error.
type FailedStep = (usize, io::Error);

/// Contents of uid_map and gid_map.
struct Maps {
    user: String,
    group: String,
}

impl Maps {
    fn for_this_user() -> Self {
        // SAFETY: neither call takes an argument, and neither can fail.
        let (user, group) = (capability::effective_uid(), unsafe { libc::getegid() });
        Maps { user: format!("{user} {user} 1"), group: format!("{group} {group} 1") }
    }

    /// Enters a new namespace, without its capabilities for other programs.
    fn enter(&self) -> Result<(), FailedStep> {
        // Mounting the sysfs of a lab needs a mount namespace that the user namespace owns.
        let flags = libc::CLONE_NEWUSER | libc::CLONE_NEWNS;
        // SAFETY: no memory is involved.
        checked(unsafe { libc::unshare(flags) }).map_err(|error| (OWN_USER_NAMESPACE, error))?;
        // A program with capabilities of its file may not be read by its own user, and root owns its files in /proc. Its
        // capabilities on the host are gone by now.
        // SAFETY: no memory is involved.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
        let files = [
            ("/proc/self/setgroups", "deny"),
            ("/proc/self/uid_map", &self.user),
            ("/proc/self/gid_map", &self.group),
        ];
        for (step, (file, text)) in (1..).zip(files) {
            write_at_once(file, text).map_err(|error| (step, error))?;
        }
        Ok(())
    }
}

fn write_at_once(file: &str, text: &str) -> io::Result<()> {
    File::options().write(true).open(file)?.write_all(text.as_bytes())
}

fn checked(rc: libc::c_int) -> io::Result<()> {
    if rc >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Enters the namespace and makes a network namespace there, in a child that ends with it.
fn tried_in_child(maps: &Maps) -> Result<(), FailedStep> {
    let child = Forked::start(|inside| {
        let failed = maps.enter().and_then(|()| make_netns()).err();
        let (step, errno) = failed.map_or((NONE_FAILED, 0), |(step, error)| {
            (step as u8, error.raw_os_error().unwrap_or(libc::EIO))
        });
        let [a, b, c, d] = errno.to_ne_bytes();
        let answer = [step, a, b, c, d];
        // Without an answer the parent reports a failure.
        // SAFETY: the bytes outlive the call.
        unsafe { libc::write(inside.socket().as_raw_fd(), answer.as_ptr().cast(), answer.len()) };
    });
    let answer = child.and_then(|child| {
        let mut answer = [0; 5];
        child.socket().read_exact(&mut answer).map(|()| answer)
    });
    let [step, errno @ ..] = answer.map_err(|error| (OWN_USER_NAMESPACE, error))?;
    if step == NONE_FAILED {
        return Ok(());
    }
    let step = usize::from(step).min(STEPS.len() - 1);
    Err((step, io::Error::from_raw_os_error(i32::from_ne_bytes(errno))))
}

fn make_netns() -> Result<(), FailedStep> {
    // SAFETY: no memory is involved.
    let made = checked(unsafe { libc::unshare(libc::CLONE_NEWNET) });
    made.map_err(|error| (NETWORK_NAMESPACE, error))
}

/// Settings of the host that forbid user namespaces; `None` for those that it does not have.
#[derive(Debug, Default)]
struct Host {
    restricted_by_apparmor: Option<u64>,
    userns_clone: Option<u64>,
    user_namespaces_max: Option<u64>,
    net_namespaces_max: Option<u64>,
    is_filtered: bool,
}

const USER_NAMESPACES_MAX: &str = "user.max_user_namespaces";
const NET_NAMESPACES_MAX: &str = "user.max_net_namespaces";

impl Host {
    fn read(proc: &Path) -> Self {
        let sysctls = proc.join("sys");
        let status = fs::read_to_string(proc.join("self/status")).unwrap_or_default();
        Host {
            restricted_by_apparmor: sysctl_number(
                &sysctls,
                "kernel/apparmor_restrict_unprivileged_userns",
            ),
            userns_clone: sysctl_number(&sysctls, "kernel/unprivileged_userns_clone"),
            user_namespaces_max: sysctl_number(&sysctls, "user/max_user_namespaces"),
            net_namespaces_max: sysctl_number(&sysctls, "user/max_net_namespaces"),
            is_filtered: status.lines().any(|line| line == "Seccomp:\t2"),
        }
    }
}

fn sysctl_number(sysctls: &Path, file: &str) -> Option<u64> {
    fs::read_to_string(sysctls.join(file)).ok()?.trim().parse().ok()
}

/// The cause of a refusal.
///
/// Sources: the errors of unshare(2) and user_namespaces(7); of AppArmor, its documentation of
/// `apparmor_restrict_unprivileged_userns`: since Ubuntu 24.04 unshare(2) succeeds there, and each use of a capability fails.
fn barrier(step: usize, error: &io::Error, host: &Host) -> UserNamespaceBarrier {
    let is_first = step == OWN_USER_NAMESPACE;
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EUSERS) if is_first => UserNamespaceBarrier::Limit {
            sysctl: USER_NAMESPACES_MAX,
            value: host.user_namespaces_max,
        },
        Some(libc::ENOSPC | libc::EUSERS) => UserNamespaceBarrier::Limit {
            sysctl: NET_NAMESPACES_MAX,
            value: host.net_namespaces_max,
        },
        Some(libc::EINVAL | libc::ENOSYS) if is_first && host.user_namespaces_max.is_none() => {
            UserNamespaceBarrier::Kernel
        }
        Some(libc::EPERM | libc::EACCES) if host.restricted_by_apparmor == Some(1) => {
            UserNamespaceBarrier::AppArmor
        }
        Some(libc::EPERM) if is_first && host.userns_clone == Some(0) => {
            UserNamespaceBarrier::CloneSysctl
        }
        // A filter may answer with any error; EPERM and ENOSYS are those of containers.
        Some(libc::EPERM | libc::ENOSYS) if is_first && host.is_filtered => {
            UserNamespaceBarrier::Seccomp
        }
        _ => UserNamespaceBarrier::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::netns::Netns;
    use crate::sysfs::Sysfs;

    fn cause(step: usize, errno: i32, host: &Host) -> UserNamespaceBarrier {
        barrier(step, &io::Error::from_raw_os_error(errno), host)
    }

    #[test]
    fn each_refusal_has_its_true_cause_and_a_remedy() {
        let plain = Host { user_namespaces_max: Some(95_000), ..Host::default() };
        let ubuntu = Host { restricted_by_apparmor: Some(1), is_filtered: true, ..Host::default() };
        let buster = Host { userns_clone: Some(0), ..Host::default() };
        let rhel7 = Host { user_namespaces_max: Some(0), ..Host::default() };
        let docker = Host { is_filtered: true, ..Host::default() };
        let full = Host { net_namespaces_max: Some(7), ..Host::default() };
        for (step, errno, host, text, remedy) in [
            (2, libc::EPERM, &ubuntu, "AppArmor", "/etc/apparmor.d/wirepath"),
            (4, libc::EPERM, &ubuntu, "apparmor_restrict_unprivileged_userns=1", "userns=0"),
            (1, libc::EACCES, &ubuntu, "AppArmor", "userns=0"),
            (0, libc::EPERM, &buster, "unprivileged_userns_clone=0", "userns_clone=1"),
            (0, libc::ENOSPC, &rhel7, "max_user_namespaces=0", "max_user_namespaces=1024"),
            (4, libc::ENOSPC, &full, "max_net_namespaces=7", "max_net_namespaces=1024"),
            (0, libc::EPERM, &docker, "seccomp", "--cap-add SYS_ADMIN"),
            (0, libc::EINVAL, &Host::default(), "no user namespaces", "CONFIG_USER_NS"),
            (4, libc::EPERM, &plain, "this host forbids", "security module"),
        ] {
            let found = cause(step, errno, host);
            assert!(found.to_string().contains(text), "{found:?}: {found}");
            assert!(found.remedy().contains(remedy), "{found:?}: {}", found.remedy());
        }
    }

    #[test]
    fn settings_are_read_where_there_are_any() {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("sys/kernel/unprivileged_userns_clone", "0\n"),
            ("sys/user/max_user_namespaces", "12\n"),
            ("self/status", "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n"),
        ] {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let host = Host::read(folder.path());
        assert_eq!((host.userns_clone, host.user_namespaces_max), (Some(0), Some(12)));
        assert_eq!((host.restricted_by_apparmor, host.is_filtered), (None, true));
    }

    #[test]
    fn a_trial_in_a_child_leaves_this_process_as_it_was() {
        let before = fs::metadata("/proc/self/ns/user").unwrap().ino();
        if let Err((step, error)) = tried_in_child(&Maps::for_this_user()) {
            testkit::skip("kernel", format!("{}: {error}", STEPS[step]));
        }
        assert_eq!(fs::metadata("/proc/self/ns/user").unwrap().ino(), before);
    }

    #[test]
    fn a_process_with_threads_is_told_so_and_stays_where_it_is() {
        // This one has those of the tests.
        let failed = Maps::for_this_user().enter();
        let (step, error) = failed.expect_err("it has threads");
        assert_eq!((step, error.raw_os_error()), (OWN_USER_NAMESPACE, Some(libc::EINVAL)));
    }

    #[test]
    fn an_unprivileged_process_makes_labs_and_its_capabilities_go_to_its_own_programs() {
        let child = Forked::start(|inside| {
            // As any user; it fails for one already.
            // SAFETY: no memory is involved.
            unsafe { libc::setresgid(65_534, 65_534, 65_534) };
            // SAFETY: no memory is involved.
            unsafe { libc::setresuid(65_534, 65_534, 65_534) };
            let said = match enter() {
                Ok(()) => {
                    let made = Netns::new();
                    let made = made.is_ok_and(|netns| Sysfs::of(&netns).is_ok());
                    format!(
                        "entered: {} {made} {}",
                        capability::is_in_initial_user_namespace(),
                        own_status()
                    )
                }
                Err(error) => format!("refused: {error}"),
            };
            // SAFETY: the bytes outlive the call.
            unsafe { libc::write(inside.socket().as_raw_fd(), said.as_ptr().cast(), said.len()) };
        });
        let mut said = String::new();
        child.unwrap().socket().read_to_string(&mut said).unwrap();
        let Some(facts) = said.strip_prefix("entered: ") else {
            return testkit::skip("kernel", said);
        };
        assert!(facts.starts_with("false true "), "{facts}");
        let ambient = facts.lines().find_map(|line| line.strip_prefix("CapAmb:")).unwrap();
        assert_ne!(u64::from_str_radix(ambient.trim(), 16).unwrap() & 1 << 21, 0, "{facts}");
        // The same outside and inside.
        assert!(
            facts.contains("Uid:\t65534\t65534") || capability::effective_uid() != 0,
            "{facts}"
        );
    }

    fn own_status() -> String {
        fs::read_to_string("/proc/self/status").unwrap()
    }
}
