//! Contents of the view of `tunnel run --live`.

use std::path::Path;
use std::time::Duration;

use crate::live::{LiveTable, Rate, Scene};
use forward::run::{Live, keepalive_text};

/// A forwarder's figures with their last minute.
pub(super) struct Picture {
    title: String,
    rates: [Rate; 2],
    worker_frames: Vec<u64>,
    up: Duration,
}

impl Picture {
    pub(super) fn new(file: &Path) -> Self {
        Picture {
            title: format!("wirepath tunnel run  {}", file.display()),
            rates: [Rate::new("into tunnels"), Rate::new("out of tunnels")],
            worker_frames: Vec::new(),
            up: Duration::ZERO,
        }
    }

    /// The scene of the next state.
    pub(super) fn scene(&mut self, live: &Live) -> Scene {
        let elapsed = live.up.saturating_sub(self.up);
        for (rate, name) in self.rates.iter_mut().zip(["into_tunnels_sent", "out_of_tunnels_sent"])
        {
            rate.push(live.count(name), elapsed);
        }
        let scene = Scene {
            title: self.title.clone(),
            up: live.up,
            rates: self.rates.to_vec(),
            tables: vec![
                LiveTable { title: "dropped since the start", rows: dropped(live), warns: true },
                LiveTable {
                    title: "workers, frames/s",
                    rows: self.workers(live, elapsed),
                    warns: false,
                },
                LiveTable { title: "state", rows: state(live), warns: false },
            ],
            keys: "q or Ctrl-C ends; SIGHUP reads the file again",
        };
        self.worker_frames.clone_from(&live.worker_frames);
        self.up = live.up;
        scene
    }

    fn workers(&self, live: &Live, elapsed: Duration) -> Vec<(String, String)> {
        let seconds = elapsed.as_secs_f64().max(1e-3);
        let rates = live.worker_frames.iter().enumerate().map(|(n, frames)| {
            let before = self.worker_frames.get(n).copied().unwrap_or(0);
            let change = frames.saturating_sub(before) as f64 / seconds;
            (format!("worker {n}"), format!("{change:.0}"))
        });
        rates.collect()
    }
}

/// Frames by reason.
fn dropped(live: &Live) -> Vec<(String, String)> {
    let drops = live.drops().into_iter();
    drops.map(|(reason, count)| (reason.to_owned(), count.to_string())).collect()
}

fn state(live: &Live) -> Vec<(String, String)> {
    let free = format!("{}/{}", live.pool.free_count, live.pool.frame_count);
    let mut rows = vec![
        ("tunnels".to_owned(), live.tunnels.len().to_string()),
        ("addresses".to_owned(), live.address_count.to_string()),
        ("free frames".to_owned(), free),
    ];
    rows.extend(live.keepalives.iter().map(|(name, live)| (name.clone(), keepalive_text(live))));
    push(&mut rows, "holes", live.books.iter().map(|books| books.hole_count).sum());
    push(&mut rows, "not waited for", live.books.iter().map(|books| books.timed_out_count).sum());
    push(&mut rows, "dead workers", live.dead_workers as u64);
    push(&mut rows, "errors", live.error_count);
    rows
}

/// A row for what has happened at all.
fn push(rows: &mut Vec<(String, String)>, name: &str, count: u64) {
    if count > 0 {
        rows.push((name.to_owned(), count.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use forward::keepalive::KeepaliveCounts;
    use forward::ports::{PoolBalance, XskStatistics};
    use forward::run::{KeepaliveLive, Reach};

    use super::*;

    fn row(name: &str, figure: &str) -> (String, String) {
        (name.to_owned(), figure.to_owned())
    }

    #[test]
    fn scene_has_the_rates_of_the_last_second_and_every_drop_once() {
        let counts = KeepaliveCounts { sent_count: 9, delay_ns: 250_000, ..Default::default() };
        let kept = KeepaliveLive { reach: Reach::Up, counts, lost_count: 2 };
        let live = |up_s, sent, frames| Live {
            up: Duration::from_secs(up_s),
            tunnels: vec!["b".into()],
            counts: vec![("into_tunnels_sent", sent), ("looped", 2), ("runt", 1), ("looped", 3)],
            books: Default::default(),
            pool: PoolBalance { free_count: 5, frame_count: 9, ..Default::default() },
            address_count: 1,
            worker_frames: vec![frames],
            dead_workers: 1,
            error_count: 0,
            rings: [Some(XskStatistics { rx_ring_full_count: 4, ..Default::default() }), None],
            queue_frames: [vec![frames], Vec::new()],
            keepalives: vec![("b".into(), kept)],
            kernel_drops: Vec::new(),
            paths: Default::default(),
        };
        let mut picture = Picture::new(Path::new("b.toml"));
        picture.scene(&live(10, 3000, 100));
        let scene = picture.scene(&live(12, 5000, 400));
        assert!(scene.title.contains("b.toml"));
        assert_eq!(scene.rates[0].count, 5000);
        assert_eq!(
            scene.tables[0].rows,
            [row("looped", "5"), row("port_ring_full", "4"), row("runt", "1")]
        );
        assert_eq!(scene.tables[1].rows, [row("worker 0", "150")]);
        let state = [row("tunnels", "1"), row("addresses", "1"), row("free frames", "5/9")];
        assert_eq!(scene.tables[2].rows[..3], state);
        let rest = [row("b", "up 0.25 ms, 2 of 9 lost"), row("dead workers", "1")];
        assert_eq!(scene.tables[2].rows[3..], rest);
    }
}
