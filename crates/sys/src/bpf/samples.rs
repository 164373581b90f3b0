//! Timer samples of the CPUs, by kernel call chain (bpf/samples.h).

use std::io;
use std::os::fd::AsRawFd;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use zerocopy::FromBytes;

use super::error::BpfError;
use super::object::{Loaded, map_error};
use crate::perf::SoftwareEvent;

/// Samples by kernel call chain, innermost first; the chain is empty in user space.
pub type Samples = Vec<(Vec<u64>, u64)>;

/// Starts the timers of all CPUs; each reason why one does not start is added to `missing`.
///
/// - `per_second`: samples of each CPU; 0 for none.
pub(super) fn start(
    loaded: &Loaded,
    per_second: u32,
    missing: &mut Vec<String>,
) -> Result<Vec<Link>, BpfError> {
    let mut links = Vec::new();
    let cpus = if per_second == 0 { 0 } else { libbpf_rs::num_possible_cpus().unwrap_or(1) };
    for cpu in 0..cpus as u32 {
        let program = loaded.program("sample")?;
        let attached = SoftwareEvent::timer(cpu, per_second).and_then(|timer| {
            let link = program.attach_perf_event(timer.as_raw_fd());
            // The link owns the descriptor now.
            link.inspect(|_| timer.give_away()).map_err(io::Error::other)
        });
        match attached {
            Ok(link) => links.push(link),
            // An offline CPU has no timer.
            Err(why) if why.raw_os_error() == Some(libc::ENODEV) => {}
            Err(why) => {
                let what = format!("samples of what CPUs do: {why}");
                if !missing.contains(&what) {
                    missing.push(what);
                }
            }
        }
    }
    Ok(links)
}

/// Reads all samples since the object was loaded.
pub(super) fn read(loaded: &Loaded) -> Result<Samples, BpfError> {
    let (samples, stacks) = (loaded.handle("samples")?, loaded.handle("stacks")?);
    let mut all = Vec::new();
    for key in samples.keys() {
        let Some(count) = lookup(&samples, &key)? else { continue };
        all.push((chain(&stacks, &key), to_u64(&count)));
    }
    Ok(all)
}

/// A call chain, innermost first; empty if there is none with this number.
pub(super) fn chain(stacks: &MapHandle, number: &[u8]) -> Vec<u64> {
    match lookup(stacks, number) {
        Ok(Some(chain)) => chain.chunks_exact(8).map(to_u64).take_while(|at| *at != 0).collect(),
        // -1: no kernel stack.
        _ => Vec::new(),
    }
}

/// Zero for anything but eight bytes.
pub(super) fn to_u64(bytes: &[u8]) -> u64 {
    u64::read_from_bytes(bytes).unwrap_or_default()
}

pub(super) fn lookup(map: &MapHandle, key: &[u8]) -> Result<Option<Vec<u8>>, BpfError> {
    map.lookup(key, MapFlags::ANY)
        .map_err(|why| map_error(&map.name().to_string_lossy(), "read", why))
}
