//! Which CPUs a thread may run on.

use std::io;

/// CPUs that the calling thread may use, ascending.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: all-zero is a valid, empty cpu_set_t.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: pid 0 is the calling thread; the size is that of `set`.
    let rc = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    let is_set = |cpu: &usize| {
        // SAFETY: the index is below CPU_SETSIZE.
        unsafe { libc::CPU_ISSET(*cpu, &set) }
    };
    Ok((0..libc::CPU_SETSIZE as usize).filter(is_set).collect())
}

/// Restricts the calling thread to `cpus`.
///
/// Errors: `InvalidInput` for an empty list or a CPU number past the kernel's set size;
/// EINVAL when none of them is online and allowed.
pub fn pin_to(cpus: &[usize]) -> io::Result<()> {
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
    // SAFETY: pid 0 is the calling thread; the size is that of `set`.
    let rc = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
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
}
