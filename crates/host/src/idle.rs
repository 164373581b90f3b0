//! Prevention of deep idle states.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use thiserror::Error;

const DEVICE: &str = "/dev/cpu_dma_latency";

#[derive(Debug, Error)]
pub enum IdleError {
    #[error("cannot prevent idle states, which needs {needs}")]
    Unsupported {
        /// The need with its remedy.
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

/// Open device that requests nothing yet: for a process that gives up its rights before it measures.
///
/// Source: the kernel's kernel/power/qos.c, cpu_latency_qos_open and cpu_latency_qos_write.
#[derive(Debug)]
pub struct IdleRequest(File);

impl IdleRequest {
    pub fn open() -> Result<Self, IdleError> {
        let request = OpenOptions::new().write(true).open(DEVICE).map_err(|source| {
            let needs = match source.kind() {
                io::ErrorKind::PermissionDenied => {
                    "write access to /dev/cpu_dma_latency: run as root, or \
                     `sudo setfacl -m u:$USER:rw /dev/cpu_dma_latency`"
                }
                _ => {
                    "a kernel with CONFIG_CPU_IDLE and its /dev/cpu_dma_latency; in a \
                     container, pass it with `--device /dev/cpu_dma_latency`"
                }
            };
            IdleError::Unsupported { needs, source }
        })?;
        Ok(IdleRequest(request))
    }

    /// Requests a wake-up latency of 0 microseconds on all CPUs until the guard drops.
    pub fn hold(&self) -> Result<HeldAwake<'_>, IdleError> {
        self.set(0)?;
        Ok(HeldAwake(self))
    }

    fn set(&self, latency_us: i32) -> Result<(), IdleError> {
        let written = (&self.0).write_all(&latency_us.to_ne_bytes());
        written.map_err(|source| IdleError::Write { source })
    }
}

/// While this lives, as for [`NoIdle`].
#[derive(Debug)]
#[must_use = "idle states are allowed again when this is dropped"]
pub struct HeldAwake<'a>(&'a IdleRequest);

impl Drop for HeldAwake<'_> {
    fn drop(&mut self) {
        // PM_QOS_DEFAULT_VALUE: no request. If this fails, the request ends with its file.
        let _ = self.0.set(-1);
    }
}

/// While this lives, no CPU of the machine enters an idle state that takes time to leave.
///
/// The request belongs to an open file: the kernel withdraws it however the process ends.
///
/// Source: the kernel's Documentation/power/pm_qos_interface.rst.
#[derive(Debug)]
#[must_use = "idle states are allowed again when this is dropped"]
pub struct NoIdle {
    _request: IdleRequest,
}

impl NoIdle {
    /// Requests a wake-up latency of 0 microseconds on all CPUs.
    pub fn hold() -> Result<Self, IdleError> {
        let request = IdleRequest::open()?;
        request.set(0)?;
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

    #[test]
    fn open_request_holds_only_while_its_guard_lives() {
        let request = match IdleRequest::open() {
            Ok(request) => request,
            Err(error) => {
                testkit::skip("pm-qos", error);
                return;
            }
        };
        let in_force_us = || {
            let mut bytes = [0xff; 4];
            File::open(DEVICE).unwrap().read_exact(&mut bytes).unwrap();
            i32::from_ne_bytes(bytes)
        };
        for _ in 0..2 {
            let held = request.hold().unwrap();
            assert_eq!(in_force_us(), 0);
            drop(held);
            // Other programs may hold it, too, for a while.
            assert!(testkit::until(testkit::LONG, || in_force_us() != 0));
        }
    }
}
