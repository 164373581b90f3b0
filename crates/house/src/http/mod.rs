//! The HTTP server of `wirepath serve` and of `--listen`: one bounded request per connection.

mod message;

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use host::slots::{SlotAdmission, SlotOrigin, Slots};

pub use message::{HttpAnswer, HttpRequest};
use message::{Refusal, parse, read_head, refusal, send};

/// Connections at the same time; a browser opens six for a page. Each further one closes the oldest without a request of
/// the largest crowd.
const CONNECTIONS_MAX: usize = 32;

/// Those with a request that no newcomer closes. If more are answered at once, the oldest of the largest crowd has to give
/// way: a client that reads slowly.
const REQUESTS_MAX: usize = 24;

/// Connections per interval that close another one: a client has a tenth of a second for its request, even if its own
/// address floods the server.
const DISPLACED_PER_POLL_MAX: usize = 4;

/// Interval at which the server polls for connections and for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Time limit for answers that are under way when the server ends.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Server { listener, address })
    }

    /// Bound address; its port is the real one even if 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `is_done`, each connection on a thread of its own.
    ///
    /// - `confine`: takes rights from such a thread before it reads the request.
    pub fn serve<F>(&self, is_done: impl Fn() -> bool, confine: fn() -> io::Result<()>, respond: F)
    where
        F: Fn(&HttpRequest) -> HttpAnswer + Send + Sync + 'static,
    {
        let respond = Arc::new(respond);
        let connections = Connections::default();
        let (mut number, mut displaced_count) = (0, 0);
        while !is_done() {
            // Errors are transient: out of descriptors, or a client that has disconnected.
            let accepted = self.listener.accept().and_then(|(stream, from)| {
                number += 1;
                Ok((connections.place_for(number, from.ip(), &stream)?, stream))
            });
            let Ok((place, stream)) = accepted else {
                displaced_count = 0;
                thread::sleep(POLL_INTERVAL);
                continue;
            };
            displaced_count += usize::from(place.displaced_another);
            let (respond, address) = (respond.clone(), self.address);
            let started = sys::thread::start_free("http", move || {
                if let Err(e) = confine() {
                    crate::console::say(&format!("cannot confine an HTTP request: {e}"));
                    return;
                }
                handle(stream, address, &place, respond.as_ref());
            });
            if let Err(e) = started {
                crate::console::say(&format!("cannot answer an HTTP request: {e}"));
            }
            if displaced_count >= DISPLACED_PER_POLL_MAX {
                displaced_count = 0;
                thread::sleep(POLL_INTERVAL);
            }
        }
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        while !connections.lock().is_empty() && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Open connections by number.
#[derive(Clone)]
struct Connections(Arc<Mutex<Slots<u64, IpAddr, Connection>>>);

struct Connection {
    stream: TcpStream,
    /// The client's request is complete.
    has_request: bool,
}

impl Default for Connections {
    fn default() -> Self {
        Connections(Arc::new(Mutex::new(Slots::new(CONNECTIONS_MAX, REQUESTS_MAX))))
    }
}

impl Connections {
    /// The table is whole after each of its calls, also after a panic of their caller.
    fn lock(&self) -> MutexGuard<'_, Slots<u64, IpAddr, Connection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a place, and closes another connection for it if all are taken.
    ///
    /// Errors: no descriptor is left.
    fn place_for(&self, number: u64, from: IpAddr, stream: &TcpStream) -> io::Result<Place> {
        let connection = Connection { stream: stream.try_clone()?, has_request: false };
        let admitted = self.lock().insert(number, SlotOrigin::from(from), connection);
        let displaced_another = match admitted {
            SlotAdmission::Free => false,
            SlotAdmission::Displaced(_, lost) => {
                lost.close();
                true
            }
            SlotAdmission::Refused(newcomer) => {
                newcomer.close();
                return Err(io::Error::other("too many connections"));
            }
        };
        Ok(Place { connections: self.clone(), number, displaced_another })
    }
}

impl Connection {
    /// Ends the connection for another one; its thread reads the end.
    fn close(self) {
        if !self.has_request {
            // Never blocks: nothing was sent before, so that the socket's send buffer is empty.
            let busy = self.stream.try_clone();
            let _ = busy.and_then(|stream| send(stream, &refusal(Refusal::Busy), false));
        }
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// One of [`CONNECTIONS_MAX`] connections, released on drop.
struct Place {
    connections: Connections,
    number: u64,
    displaced_another: bool,
}

impl Place {
    /// The client's request is complete: no newcomer closes its connection. False if one did already.
    fn prove(&self) -> bool {
        let mut connections = self.connections.lock();
        let Some(connection) = connections.get_mut(&self.number) else { return false };
        connection.has_request = true;
        connections.prove(&self.number)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.lock().remove(&self.number);
    }
}

fn handle(
    mut stream: TcpStream,
    here: SocketAddr,
    place: &Place,
    respond: &impl Fn(&HttpRequest) -> HttpAnswer,
) {
    if stream.set_nonblocking(false).is_err() {
        return;
    }
    let request = match read_head(&mut stream) {
        Ok(None) => return,
        Ok(Some(head)) => parse(&head, here),
        Err(refusal) => Err(refusal),
    };
    // A refused request has no protection, but an answer of its own.
    if request.is_ok() && !place.prove() {
        return;
    }
    let (answer, head_only) = match request {
        Ok(request) => (respond(&request), request.head_only),
        Err(refused) => (refusal(refused), false),
    };
    // Fails only if the client has disconnected.
    let _ = send(stream, &answer, head_only);
}
