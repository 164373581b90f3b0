//! Causes of delays: each is planted on the CPU of a meter, and must be named.

use std::fs;
use std::hint::{black_box, spin_loop};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Pair, PairSpec};
use sys::sysfs::Sysfs;
use sys::{affinity, sched};
use wirepath_host::interruptions::{
    CauseKind, Meter, Noise, RING_BYTES, RING_BYTES_MIN, Tallies, Trace,
};

/// Gaps after which a planted cause has had its chance.
const ENOUGH: u64 = 20;
/// Longest time that a test waits for them.
const TIME_MAX: Duration = Duration::from_secs(20);

/// The CPU of the meter, and another one; one test at a time has them.
fn cpus() -> (usize, usize, MutexGuard<'static, ()>) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let allowed = affinity::allowed_cpus().unwrap();
    (*allowed.last().unwrap(), allowed[0], turn)
}

/// Planted gaps must be found, and those without a known cause be fewer: on a busy machine other causes are
/// true as well.
fn mostly(gaps: &Tallies, kind: CauseKind) {
    let (named, unknown) = (gaps.count_of(kind), gaps.count_of(CauseKind::Unknown));
    assert!(named >= ENOUGH && named > unknown, "{kind:?} are {named} of {:?}", gaps.rows());
}

/// Watches in steps until enough gaps of a kind are found. Runs on a thread of its own.
fn watch(
    meter: Meter,
    kind: CauseKind,
    before: impl FnOnce() + Send,
    mut work: impl FnMut() + Send,
) -> Noise {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            before();
            let begun = Instant::now();
            loop {
                // A trace follows one thread, once.
                let trace = Trace::open(RING_BYTES).unwrap();
                let step = Duration::from_millis(500);
                let noise = meter.watch(step, Some(&trace), &stop, &mut work).unwrap();
                if noise.gaps.count_of(kind) >= ENOUGH || begun.elapsed() > TIME_MAX {
                    return noise;
                }
            }
        });
        watching.join().unwrap()
    })
}

#[test]
fn a_real_time_task_on_the_cpu_is_named() {
    let (cpu, _, _turn) = cpus();
    let done = AtomicBool::new(false);
    let noise = thread::scope(|scope| {
        let hog = || {
            affinity::pin_to(&[cpu]).unwrap();
            sched::set_fifo(50).unwrap();
            while !done.load(Ordering::Relaxed) {
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(2) {
                    spin_loop();
                }
                thread::sleep(Duration::from_millis(3));
            }
        };
        thread::Builder::new().name("wp-hog".into()).spawn_scoped(scope, hog).unwrap();
        let meter = Meter { cpu, over: Duration::from_millis(1) };
        let noise = watch(meter, CauseKind::Preemption, || {}, || {});
        done.store(true, Ordering::Relaxed);
        noise
    });
    mostly(&noise.gaps, CauseKind::Preemption);
    let rows = noise.gaps.rows();
    assert!(rows.iter().any(|(cause, _)| cause.detail == "wp-hog"), "{rows:?}");
}

/// A control group with a quota, of either version; removed on drop.
struct Quota {
    folder: PathBuf,
    parent: PathBuf,
    members: &'static str,
}

impl Quota {
    /// Errors: the reason why this machine cannot have one.
    fn of_a_fifth() -> io::Result<Quota> {
        let name = format!("wirepath-quota-{}", std::process::id());
        let version_1 = PathBuf::from("/sys/fs/cgroup/cpu");
        let (parent, members) = match version_1.join("tasks").exists() {
            true => (version_1, "tasks"),
            false => (PathBuf::from("/sys/fs/cgroup"), "cgroup.threads"),
        };
        let folder = parent.join(name);
        fs::create_dir(&folder)?;
        let quota = Quota { folder, parent, members };
        if members == "tasks" {
            fs::write(quota.folder.join("cpu.cfs_period_us"), "20000")?;
            fs::write(quota.folder.join("cpu.cfs_quota_us"), "4000")?;
        } else {
            fs::write(quota.folder.join("cpu.max"), "4000 20000")?;
            fs::write(quota.folder.join("cgroup.type"), "threaded")?;
        }
        Ok(quota)
    }

    fn enter(&self) {
        let thread = sys::thread::id().to_string();
        fs::write(self.folder.join(self.members), thread).unwrap();
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        for thread in fs::read_to_string(self.folder.join(self.members)).unwrap_or_default().lines()
        {
            let _ = fs::write(self.parent.join(self.members), thread);
        }
        testkit::until(testkit::LONG, || {
            fs::remove_dir(&self.folder).is_ok() || !self.folder.exists()
        });
    }
}

#[test]
fn a_quota_that_is_used_up_is_named() {
    let (cpu, _, _turn) = cpus();
    let quota = match Quota::of_a_fifth() {
        Ok(quota) => quota,
        Err(why) => return testkit::skip("kernel", format!("no quota of a control group: {why}")),
    };
    let meter = Meter { cpu, over: Duration::from_millis(5) };
    let noise = watch(meter, CauseKind::Throttling, || quota.enter(), || {});
    mostly(&noise.gaps, CauseKind::Throttling);
}

#[test]
fn page_faults_are_named() {
    let (cpu, _, _turn) = cpus();
    // Fresh pages of the kernel: all of them together are never touched twice.
    let mut fresh = vec![0_u8; 512 << 20];
    let mut pages = fresh.chunks_mut(4096);
    let work = || {
        pages.by_ref().take(256).for_each(|page| page[0] = 1);
    };
    let meter = Meter { cpu, over: Duration::from_micros(50) };
    let noise = watch(meter, CauseKind::PageFault, || {}, work);
    mostly(&noise.gaps, CauseKind::PageFault);
}

#[test]
fn the_timer_of_the_kernel_is_named() {
    let (cpu, _, _turn) = cpus();
    let meter = Meter { cpu, over: Duration::from_nanos(800) };
    let noise = watch(meter, CauseKind::Interrupt, || {}, || {});
    let rows = noise.gaps.rows();
    let named = rows.iter().any(|(cause, tally)| {
        cause.kind == CauseKind::Interrupt && cause.detail == "timer" && tally.count >= 2
    });
    assert!(named || cfg!(not(target_arch = "x86_64")), "{rows:?}");
}

#[test]
fn packets_of_others_that_are_steered_to_the_cpu_are_named() {
    let (cpu, other, _turn) = cpus();
    if cpu == other {
        return testkit::skip("kernel", "one CPU: no other one can steer packets to it");
    }
    let Pair { near, far } = &Pair::new(&PairSpec::default()).unwrap();
    let steering = format!("class/net/{}/queues/rx-0/rps_cpus", far.ifname);
    let sysfs = Sysfs::of(&far.netns).unwrap();
    sysfs.write(steering, &format!("{:x}", 1_u64 << cpu)).unwrap();
    let done = AtomicBool::new(false);
    let noise = thread::scope(|scope| {
        let flood = || {
            affinity::pin_to(&[other]).unwrap();
            near.run(|| {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
                while !done.load(Ordering::Relaxed) {
                    // Nothing listens: refusals are expected.
                    let _ = socket.send_to(&[0; 64], (far.ip, 9));
                }
            })
            .unwrap();
        };
        scope.spawn(flood);
        let meter = Meter { cpu, over: Duration::from_micros(20) };
        let noise = watch(meter, CauseKind::Softirq, || {}, || {});
        done.store(true, Ordering::Relaxed);
        noise
    });
    mostly(&noise.gaps, CauseKind::Softirq);
}

#[test]
fn intervals_that_do_not_fit_are_counted() {
    let (cpu, _, _turn) = cpus();
    let lost = || {
        let mut traced = sys::bpf::interruptions::Interruptions::attach(RING_BYTES_MIN).unwrap();
        affinity::pin_to(&[cpu]).unwrap();
        traced.follow(sys::thread::id()).unwrap();
        let mut read = Vec::new();
        // More page faults than the ring has room for.
        let mut fresh = vec![0_u8; 64 << 20];
        testkit::until(testkit::LONG, || {
            thread::sleep(Duration::from_millis(1));
            for page in fresh.chunks_mut(4096) {
                page[0] = 1;
            }
            black_box(&fresh);
            fresh = vec![0_u8; 64 << 20];
            traced.drain(&mut read);
            read.last().is_some_and(|last| last.lost_count > 0)
        })
    };
    assert!(thread::scope(|scope| scope.spawn(lost).join().unwrap()));
}
