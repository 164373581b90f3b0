//! The HTTP server of `wirepath serve` and of `--metrics`: one bounded request per connection.

mod message;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use message::{Answer, Request};
use message::{Refusal, parse, read_head, refusal, send};

/// Connections served at the same time; a browser opens six for a page.
const CONNECTIONS_MAX: usize = 32;

/// Interval at which the server polls for connections and for its end.
const POLL: Duration = Duration::from_millis(20);

/// Time limit for answers that are under way when the server ends.
const DRAIN: Duration = Duration::from_secs(2);

pub(crate) struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Server { listener, address })
    }

    /// Bound address; its port is the real one even if 0 was requested.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `is_done`, each connection on a thread of its own.
    ///
    /// - `confine`: takes rights from such a thread before it reads the request.
    pub(crate) fn serve<F>(
        &self,
        is_done: impl Fn() -> bool,
        confine: fn() -> io::Result<()>,
        respond: F,
    ) where
        F: Fn(&Request) -> Answer + Send + Sync + 'static,
    {
        let respond = Arc::new(respond);
        let open = Arc::new(AtomicUsize::new(0));
        while !is_done() {
            // Errors are transient: out of descriptors, or a client that has disconnected.
            let Ok((stream, _)) = self.listener.accept() else {
                thread::sleep(POLL);
                continue;
            };
            if open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
                // Never blocks: the socket's send buffer is empty.
                let _ = send(stream, &refusal(Refusal::Busy), false);
                continue;
            }
            open.fetch_add(1, Ordering::Relaxed);
            let (slot, respond, address) = (Slot(open.clone()), respond.clone(), self.address);
            let started = sys::thread::start_free("http", move || {
                let _slot = slot;
                if let Err(e) = confine() {
                    crate::console::say(&format!("cannot confine an HTTP request: {e}"));
                    return;
                }
                handle(stream, address, respond.as_ref());
            });
            if let Err(e) = started {
                crate::console::say(&format!("cannot answer an HTTP request: {e}"));
            }
        }
        let deadline = Instant::now() + DRAIN;
        while open.load(Ordering::Relaxed) > 0 && Instant::now() < deadline {
            thread::sleep(POLL);
        }
    }
}

/// One of [`CONNECTIONS_MAX`] connections, released on drop.
struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn handle(mut stream: TcpStream, here: SocketAddr, respond: &impl Fn(&Request) -> Answer) {
    if stream.set_nonblocking(false).is_err() {
        return;
    }
    let request = match read_head(&mut stream) {
        Ok(None) => return,
        Ok(Some(head)) => parse(&head, here),
        Err(refusal) => Err(refusal),
    };
    let (answer, head_only) = match request {
        Ok(request) => (respond(&request), request.head_only),
        Err(refused) => (refusal(refused), false),
    };
    // Fails only if the client has disconnected.
    let _ = send(stream, &answer, head_only);
}
