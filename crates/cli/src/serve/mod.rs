//! `wirepath serve`: the history as pages, on loopback and nowhere else.

mod http;
mod routes;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use io::capability::Capability;

use crate::args::Cli;
use crate::console;
use crate::end::Failure;
use crate::{history, rights, stop};

/// Connections answered at a time; a page is one, and a browser opens six.
const CONNECTIONS_MAX: usize = 32;

/// How often it looks whether to end.
const NAP: Duration = Duration::from_millis(20);

/// For answers under way when it is asked to end.
const FAREWELL: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Port on 127.0.0.1; 0 takes any that is free
    #[arg(long, default_value_t = 7118)]
    pub(crate) port: u16,
}

pub(crate) fn run(cli: &Cli, args: &ServeArgs) -> Result<(), Failure> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let cannot = |e: std::io::Error| {
        Failure::failed(format!("cannot serve on {address}: {e}; choose another --port"))
    };
    let listener = TcpListener::bind(address).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    let here = listener.local_addr().map_err(cannot)?;
    let database = history::database(cli)?;
    // A file that is not ours is told now, and not on every page.
    match report::store::SqliteStore::open_reading(&database) {
        Ok(_) | Err(report::store::StoreError::Empty) => {}
        Err(e) => return Err(e.into()),
    }
    stop::on_hangup()?;
    rights::keep(kept_to_read(&database)).map_err(Failure::failed)?;
    let url = format!("http://{here}/");
    match cli.json {
        true => console::text(&serde_json::json!({ "url": url }).to_string())?,
        false => console::text(&format!("{url}\nuntil Ctrl-C"))?,
    }
    serve(&listener, here, &database)
}

/// What reading a file of somebody else's takes: SQLite writes beside what it reads.
fn kept_to_read(database: &Path) -> &'static [Capability] {
    let owner = |path: &Path| std::fs::metadata(path).map(|of| of.uid()).ok();
    // A process belongs to its effective user.
    let is_own = owner(database).is_none_or(|uid| Some(uid) == owner(Path::new("/proc/self")));
    if is_own { &[] } else { &[Capability::DacOverride] }
}

fn serve(listener: &TcpListener, here: SocketAddr, database: &Path) -> Result<(), Failure> {
    let open = Arc::new(AtomicUsize::new(0));
    while !stop::asked() {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                thread::sleep(NAP);
                continue;
            }
            // Out of descriptors, or a peer that went away: the next may do.
            Err(_) => {
                thread::sleep(NAP);
                continue;
            }
        };
        if open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
            // Never blocks: the socket's buffer is empty. Whether it arrives is the other's business.
            let _ = http::send(stream, &http::refusal(http::Refusal::Busy), false);
            continue;
        }
        open.fetch_add(1, Ordering::Relaxed);
        let (place, database) = (Place(open.clone()), database.to_path_buf());
        let answered = thread::Builder::new().name("page".into()).spawn(move || {
            let _place = place;
            answer(stream, here, &database);
        });
        if let Err(e) = answered {
            console::say(&format!("cannot answer: {e}"));
        }
    }
    let deadline = Instant::now() + FAREWELL;
    while open.load(Ordering::Relaxed) > 0 && Instant::now() < deadline {
        thread::sleep(NAP);
    }
    Ok(())
}

/// Counts a connection until it is over, however that happens.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn answer(mut stream: TcpStream, here: SocketAddr, database: &Path) {
    if stream.set_nonblocking(false).is_err() {
        return;
    }
    let request = match http::read_head(&mut stream) {
        Ok(None) => return,
        Ok(Some(head)) => http::parse(&head, here),
        Err(refusal) => Err(refusal),
    };
    let (answer, head_only) = match request {
        Ok(request) => (routes::answer(&request, database), request.head_only),
        Err(refusal) => (http::refusal(refusal), false),
    };
    // Whoever asked has gone: nothing to do about it.
    let _ = http::send(stream, &answer, head_only);
}
