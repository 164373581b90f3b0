//! Causes of delays, planted on the CPU of a meter: for tests, and for the study of path `feed`.

mod quota;

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use host::interruptions::{CauseKind, InterruptionMeter, Noise, RING_BYTES, Trace};
use lab::{Pair, PairSpec};
use sys::sysfs::Sysfs;
use sys::{affinity, clock, sched};
use vmm_sys_util::timerfd::TimerFd;

use self::quota::Quota;

/// A cause, its true names, and the shortest delay that it makes.
pub(crate) struct Plant {
    pub(crate) planted: &'static str,
    /// Kind, and detail, which is empty if it has none. More than one if it takes the CPU in several ways.
    pub(crate) names: &'static [(CauseKind, &'static str)],
    pub(crate) over: Duration,
    watch: fn(&Watch<'_>) -> io::Result<Noise>,
}

/// All of them.
pub(crate) const PLANTS: [Plant; 5] = [
    Plant {
        planted: "900 timers that expire together",
        names: &[(CauseKind::Interrupt, if cfg!(target_arch = "x86_64") { "timer" } else { "" })],
        // Above the tick, and above the pauses of a hypervisor, of 20 to 50 µs each.
        over: Duration::from_micros(60),
        watch: beside_timers,
    },
    Plant {
        planted: "a real-time task",
        names: &[(CauseKind::Preemption, HOG)],
        over: Duration::from_millis(1),
        watch: beside_a_hog,
    },
    Plant {
        planted: "a quota of the control group",
        names: &[(CauseKind::Throttling, "")],
        over: Duration::from_millis(5),
        watch: with_a_quota,
    },
    Plant {
        planted: "packets that RPS steers to the CPU",
        // The other CPU calls this one, which a hypervisor may prolong beyond the softirq.
        names: &[(CauseKind::Softirq, "NET_RX"), (CauseKind::Interrupt, "rps_trigger_softirq")],
        over: Duration::from_micros(20),
        watch: below_packets,
    },
    Plant {
        planted: "pages that are touched first",
        names: &[(CauseKind::PageFault, "")],
        // Above the tick, and above the pauses of a hypervisor.
        over: Duration::from_micros(150),
        watch: on_fresh_pages,
    },
];

/// Name of the real-time task.
const HOG: &str = "wp-hog";

impl Plant {
    /// Watches beside the planted cause, until there were enough delays or for a while.
    ///
    /// Errors: the reason why this machine cannot have it.
    pub(crate) fn watch(&self, enough: u64, step: Duration) -> io::Result<Noise> {
        let (cpu, other, _turn) = cpus();
        (self.watch)(&Watch { plant: self, cpu, other, enough, step })
    }

    /// Delays that have the planted cause's name.
    pub(crate) fn named(&self, noise: &Noise) -> u64 {
        let rows = noise.gaps.rows();
        rows.iter()
            .filter(|(cause, _)| {
                self.names.iter().any(|(kind, detail)| {
                    *kind == cause.kind && (detail.is_empty() || *detail == cause.detail)
                })
            })
            .map(|(_, tally)| tally.count)
            .sum()
    }
}

/// The CPU of the meter, and another one; one plant at a time has them.
pub(crate) fn cpus() -> (usize, usize, MutexGuard<'static, ()>) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let allowed = affinity::allowed_cpus().unwrap();
    (*allowed.last().unwrap(), allowed[0], turn)
}

/// A meter beside a planted cause.
struct Watch<'a> {
    plant: &'a Plant,
    cpu: usize,
    other: usize,
    enough: u64,
    step: Duration,
}

impl Watch<'_> {
    /// Watches in longer and longer steps until one has enough gaps with the right name. Runs on a thread of its own.
    fn run(&self, before: impl FnOnce() + Send, mut work: impl FnMut() + Send) -> Noise {
        /// Longest time to wait for enough.
        const TIME_MAX: Duration = Duration::from_secs(60);
        let (stop, meter) =
            (AtomicBool::new(false), InterruptionMeter { cpu: self.cpu, over: self.plant.over });
        let everywhere = affinity::allowed_cpus().unwrap();
        thread::scope(|scope| {
            let watching = scope.spawn(|| {
                before();
                let (begun, mut step) = (Instant::now(), self.step);
                loop {
                    // A trace follows one thread, once. Its own thread belongs to no CPU.
                    affinity::pin_to(&everywhere).unwrap();
                    let trace = Trace::open(RING_BYTES).unwrap();
                    let noise = meter.watch(step, Some(&trace), &stop, &mut work).unwrap();
                    let named = self.plant.named(&noise);
                    if named >= self.enough || begun.elapsed() > TIME_MAX.max(self.step) {
                        return noise;
                    }
                    step *= 2;
                }
            });
            watching.join().unwrap()
        })
    }

    /// Watches while another thread runs, until `done` is set.
    fn beside(&self, name: &str, other: impl FnOnce(&AtomicBool) + Send) -> Noise {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            thread::Builder::new().name(name.into()).spawn_scoped(scope, || other(&done)).unwrap();
            let noise = self.run(|| {}, || {});
            done.store(true, Ordering::Relaxed);
            noise
        })
    }
}

/// Timers expire on the CPU that sets them: the meter does so, one at each reading of the clock.
fn beside_timers(watch: &Watch<'_>) -> io::Result<Noise> {
    // Few enough for the usual limit of 1,024 open files.
    const COUNT: usize = 900;
    const EVERY_NS: u64 = 4_000_000;
    let timers = (0..COUNT).map(|_| TimerFd::new()).collect::<Result<Vec<_>, _>>();
    let mut timers = timers.map_err(|why| io::Error::from_raw_os_error(why.errno()))?;
    let (mut next, mut expire_ns) = (0, clock::monotonic_ns() + EVERY_NS);
    Ok(watch.run(
        || {},
        || {
            let now_ns = clock::monotonic_ns();
            if now_ns >= expire_ns {
                (next, expire_ns) = (0, now_ns + EVERY_NS);
            } else if let Some(timer) = timers.get_mut(next) {
                timer.reset(Duration::from_nanos(expire_ns - now_ns), None).unwrap();
                next += 1;
            }
        },
    ))
}

fn beside_a_hog(watch: &Watch<'_>) -> io::Result<Noise> {
    Ok(watch.beside(HOG, |done| {
        affinity::pin_to(&[watch.cpu]).unwrap();
        sched::set_fifo(50).unwrap();
        while !done.load(Ordering::Relaxed) {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(2) {
                std::hint::spin_loop();
            }
            thread::sleep(Duration::from_millis(3));
        }
    }))
}

fn with_a_quota(watch: &Watch<'_>) -> io::Result<Noise> {
    let quota = Quota::of_a_twentieth()?;
    Ok(watch.run(|| quota.enter(sys::thread::id()), || {}))
}

fn below_packets(watch: &Watch<'_>) -> io::Result<Noise> {
    if watch.cpu == watch.other {
        return Err(io::Error::other("one CPU: no other one can steer packets to it"));
    }
    let Pair { near, far } = &Pair::new(&PairSpec::default()).unwrap();
    let steering = format!("class/net/{}/queues/rx-0/rps_cpus", far.ifname);
    let sysfs = Sysfs::of(&far.netns).unwrap();
    sysfs.write(steering, &format!("{:x}", 1_u64 << watch.cpu)).unwrap();
    Ok(watch.beside("wp-flood", |done| {
        affinity::pin_to(&[watch.other]).unwrap();
        near.run(|| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            while !done.load(Ordering::Relaxed) {
                // Nothing listens: refusals are expected.
                let _ = socket.send_to(&[0; 64], (far.ip, 9));
            }
        })
        .unwrap();
    }))
}

fn on_fresh_pages(watch: &Watch<'_>) -> io::Result<Noise> {
    /// Of pages that are touched between two readings of the clock.
    const STEP: usize = 768 * 4096;
    // So large that its memory comes from the kernel and goes back to it.
    let new = || vec![0_u8; 128 * STEP];
    let (mut fresh, mut next) = (new(), 0);
    Ok(watch.run(
        || {},
        || {
            if next == fresh.len() {
                (fresh, next) = (new(), 0);
            }
            fresh[next..next + STEP].chunks_mut(4096).for_each(|page| page[0] = 1);
            next += STEP;
        },
    ))
}
