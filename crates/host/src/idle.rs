//! Prevention of deep idle states.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use thiserror::Error;

const DEVICE: &str = "/dev/cpu_dma_latency";

/// Idle states could not be prevented.
#[derive(Debug, Error)]
pub enum IdleError {
    #[error("cannot prevent idle states: {needs}")]
    Unsupported {
        needs: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("cannot write to {DEVICE}")]
    Write {
        #[source]
        source: io::Error,
    },
}

/// While this lives, no CPU of the machine enters an idle state that takes time to leave.
///
/// The request belongs to an open file: the kernel withdraws it however the process ends.
///
/// Source: the kernel's Documentation/power/pm_qos_interface.rst.
#[derive(Debug)]
#[must_use = "idle states are allowed again when this is dropped"]
pub struct NoIdle {
    _request: File,
}

impl NoIdle {
    /// Requests a wake-up latency of 0 microseconds on all CPUs.
    pub fn hold() -> Result<Self, IdleError> {
        let mut request = OpenOptions::new().write(true).open(DEVICE).map_err(|source| {
            let needs = match source.kind() {
                io::ErrorKind::PermissionDenied => {
                    "write access to /dev/cpu_dma_latency is needed; run as root, or \
                     `sudo setfacl -m u:$USER:rw /dev/cpu_dma_latency`"
                }
                _ => {
                    "a kernel with CONFIG_CPU_IDLE and its /dev/cpu_dma_latency is needed; in a \
                     container, pass it with `--device /dev/cpu_dma_latency`"
                }
            };
            IdleError::Unsupported { needs, source }
        })?;
        let latency_us = 0_i32;
        request
            .write_all(&latency_us.to_ne_bytes())
            .map_err(|source| IdleError::Write { source })?;
        Ok(NoIdle { _request: request })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn kernel_accepts_the_request() {
        let guard = match NoIdle::hold() {
            Ok(guard) => guard,
            Err(error @ IdleError::Unsupported { .. }) => {
                testkit::skip("pm-qos", error);
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let mut in_force_us = [0xff; 4];
        File::open(DEVICE).unwrap().read_exact(&mut in_force_us).unwrap();
        assert_eq!(i32::from_ne_bytes(in_force_us), 0);
        drop(guard);
    }
}
