//! Strangers that hold connections open in silence.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sys::netns::Netns;

/// Threads, each with one connection that says nothing and returns as soon as it is closed; they end when dropped.
pub(crate) struct Strangers {
    stop: Arc<AtomicBool>,
    connected: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Strangers {
    /// - `servers`: address that each connects to.
    pub(crate) fn start(space: &Netns, servers: Vec<SocketAddr>) -> Self {
        let (stop, connected) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        // Threads are born in their parent's namespace.
        let threads = space
            .run(|| {
                servers
                    .into_iter()
                    .map(|server| {
                        let (stop, connected) = (stop.clone(), connected.clone());
                        thread::spawn(move || hold(server, &stop, &connected))
                    })
                    .collect()
            })
            .expect("the namespace");
        Strangers { stop, connected, threads }
    }

    /// Connections so far, those that were closed included.
    pub(crate) fn connected(&self) -> usize {
        self.connected.load(Ordering::Relaxed)
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn hold(server: SocketAddr, stop: &AtomicBool, connected: &AtomicUsize) {
    while !stop.load(Ordering::Relaxed) {
        if let Ok(mut stream) = TcpStream::connect(server) {
            connected.fetch_add(1, Ordering::Relaxed);
            let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
            let mut said = [0; 4096];
            while !stop.load(Ordering::Relaxed) {
                match stream.read(&mut said) {
                    Ok(1..) => {}
                    Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                    Ok(0) | Err(_) => break,
                }
            }
        }
        thread::sleep(Duration::from_millis(10));
    }
}
