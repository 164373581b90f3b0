//! CPU affinity of threads.

use std::io;

/// Allowed CPUs of the calling thread, ascending.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: all-zero is a valid, empty cpu_set_t.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: pid 0 is the calling thread; the size is that of `set`.
    let rc = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((0..libc::CPU_SETSIZE as usize)
        .filter(|cpu| {
            // SAFETY: the index is below CPU_SETSIZE.
            unsafe { libc::CPU_ISSET(*cpu, &set) }
        })
        .collect())
}

/// Restricts the calling thread to `cpus`.
///
/// Errors: `InvalidInput` for an empty list or a CPU number past the kernel's set size;
/// EINVAL when none of them is online and allowed.
pub fn pin_to(cpus: &[usize]) -> io::Result<()> {
    pin(0, cpus)
}

/// Restricts a thread of another process to `cpus`; `tid` is its kernel thread id.
///
/// Errors: those of [`pin_to`]; ESRCH if there is no such thread, EPERM if it belongs to another
/// user.
pub fn pin_thread(tid: u32, cpus: &[usize]) -> io::Result<()> {
    match libc::pid_t::try_from(tid) {
        // 0 would be the calling thread.
        Ok(tid @ 1..) => pin(tid, cpus),
        _ => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

fn pin(tid: libc::pid_t, cpus: &[usize]) -> io::Result<()> {
    // SAFETY: all-zero is a valid, empty cpu_set_t.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if cpus.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no CPU to pin to"));
    }
    for &cpu in cpus {
        if cpu >= libc::CPU_SETSIZE as usize {
            let what = format!("CPU {cpu} does not exist");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        // SAFETY: the index was checked to be below CPU_SETSIZE.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: the size is that of `set`, which lives through the call.
    let rc = unsafe { libc::sched_setaffinity(tid, size_of::<libc::cpu_set_t>(), &set) };
    if rc != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_sees_only_its_cpu() {
        std::thread::spawn(|| {
            let last = *allowed_cpus().unwrap().last().unwrap();
            pin_to(&[last]).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [last]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn an_absent_cpu_is_an_error() {
        assert!(pin_to(&[]).is_err());
        assert!(pin_to(&[1_000_000]).is_err());
    }

    #[test]
    fn a_thread_of_another_process_is_moved_and_an_absent_one_is_an_error() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let last = *allowed_cpus().unwrap().last().unwrap();
        pin_thread(child.id(), &[last]).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let allowed = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap();
        assert_eq!(allowed.trim(), last.to_string());
        assert!(pin_thread(child.id(), &[last]).is_err());
        assert!(pin_thread(0, &[last]).is_err(), "not ourselves by accident");
    }
}
