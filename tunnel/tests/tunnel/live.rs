//! `wirepath tunnel run --live` on a terminal of our own: what is drawn, and that the terminal is
//! restored however the command ends.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::num::NonZero;
use std::os::fd::AsFd;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::common::{
    Data, FAR_IP, LONG, NEAR_IP, Running, Spaces, fail, ip, is_installed, succeed, until,
};
use host::netns::Netns;
use sys::pty::Pty;
use vt100::Parser;

/// The forwarder on a terminal of 80 by 24, its standard error apart from it.
struct Shown {
    running: Running,
    spaces: Spaces,
    file: String,
    _data: Data,
    master: File,
    terminal: File,
    before: String,
    parser: Arc<Mutex<Parser>>,
    /// The reader must not touch the terminal.
    is_closed: Arc<AtomicBool>,
    reader: JoinHandle<()>,
}

fn size(cells: u16) -> NonZero<u16> {
    NonZero::new(cells).expect("some")
}

fn stty(terminal: &File, args: &[&str]) -> String {
    let mut command = Command::new("stty");
    command.args(args).stdin(terminal.try_clone().expect("a descriptor"));
    succeed(command)
}

impl Shown {
    fn start(env: &[(&str, &str)]) -> Self {
        let (spaces, data) = (Spaces::new(), Data::new());
        let file = data.file("tunnel.toml");
        let config = crate::common::tunnel_config("tap", "lan0", ("va", NEAR_IP), FAR_IP);
        fs::write(&file, config).expect("a file");
        let Pty { master, terminal } = Pty::open().expect("a terminal");
        stty(&terminal, &["rows", "24", "cols", "80"]);
        let before = stty(&terminal, &["-g"]);
        // Standard output is the terminal, too; standard error is for us.
        let args = ["ip", "netns", "exec", &spaces.near, "sh", "-c", "exec \"$@\" >&0", "sh"];
        let program = [env!("CARGO_BIN_EXE_wirepath"), "tunnel", "run", "--live", &file];
        let mut command = Command::new("setsid");
        command.arg("--ctty").args(args).args(program).env_remove("NO_COLOR");
        command.env("TERM", "xterm").env("LC_ALL", "C.UTF-8").envs(env.iter().copied());
        command.stdin(terminal.try_clone().expect("a descriptor"));
        let running = Running::start(command);
        let parser = Arc::new(Mutex::new(Parser::new(size(24), size(80), 0)));
        let is_closed = Arc::new(AtomicBool::new(false));
        let (mut from, into) = (master.try_clone().expect("a descriptor"), Arc::clone(&parser));
        let closed = Arc::clone(&is_closed);
        let reader = thread::spawn(move || {
            let mut piece = [0; 4096];
            while !closed.load(Ordering::Relaxed) {
                let nap = Duration::from_millis(20);
                if sys::poll::readable(&[from.as_fd()], nap).expect("a terminal") == 0 {
                    continue;
                }
                let Ok(len @ 1..) = from.read(&mut piece) else { break };
                into.lock().unwrap().process(&piece[..len]);
            }
        });
        let shown = Shown {
            running,
            spaces,
            file,
            _data: data,
            master,
            terminal,
            before,
            parser,
            is_closed,
            reader,
        };
        shown.await_text("tunnel b: ");
        shown
    }

    fn parser(&self) -> MutexGuard<'_, Parser> {
        self.parser.lock().unwrap()
    }

    fn text(&self) -> String {
        self.parser().screen().contents()
    }

    fn await_text(&self, text: &str) {
        let came = until(LONG, || self.text().contains(text));
        assert!(came, "waited for {text:?}: {}\n{}", self.text(), self.running.stderr());
    }

    fn press(&mut self, keys: &[u8]) {
        self.master.write_all(keys).expect("the terminal is there");
    }

    /// Broadcasts from the port, which go into the tunnel.
    fn send(&self, count: u32) {
        let near = &self.spaces.near;
        succeed(ip(&["-n", near, "address", "replace", "10.88.0.1/24", "dev", "lan0"]));
        let space = Netns::open(format!("/run/netns/{near}")).expect("the namespace is there");
        space
            .run(|| {
                let socket = UdpSocket::bind(("10.88.0.1", 0)).expect("a socket");
                socket.set_broadcast(true).expect("a socket");
                for _ in 0..count {
                    socket.send_to(&[0; 64], "10.88.0.255:47011").expect("an address of our own");
                }
            })
            .expect("the namespace is there");
    }

    /// Asserts that the terminal is as it was, once the program has ended; what it said.
    fn ended(self) -> (Output, String) {
        let text = self.text();
        let Shown { running, terminal, before, parser, reader, .. } = self;
        let output = running.finish(LONG).unwrap_or_else(|| panic!("it does not end: {text}"));
        assert_eq!(stty(&terminal, &["-g"]), before);
        // The last descriptor: the reader reaches the end of the output.
        drop(terminal);
        reader.join().expect("the reader ends");
        let screen = parser.lock().unwrap().screen().clone();
        assert!(!screen.alternate_screen() && !screen.hide_cursor(), "the picture is still there");
        assert!(!crate::common::all_text(&output).contains("panicked"), "{output:?}");
        (output, screen.contents())
    }
}

#[test]
fn figures_are_drawn_at_any_size_and_q_ends() {
    if !is_installed("ip") {
        return;
    }
    let mut shown = Shown::start(&[]);
    assert!(shown.parser().screen().alternate_screen());
    assert_ne!(stty(&shown.terminal, &["-g"]), shown.before);
    shown.send(500);
    let count = || {
        let text = shown.text();
        let line = text.lines().find(|line| line.starts_with("into tunnels"))?;
        let (figures, _) = line.split_once(" in all")?;
        figures.split_whitespace().last()?.parse::<u32>().ok()
    };
    assert!(until(LONG, || count() >= Some(500)), "{}", shown.text());
    for text in ["worker 0", "free frames", "addresses", "─", "█"] {
        shown.await_text(text);
    }
    shown.parser().screen_mut().set_size(size(30), size(100));
    stty(&shown.terminal, &["rows", "30", "cols", "100"]);
    let keys = |row: usize| shown.parser().screen().rows(0, 100).nth(row).unwrap_or_default();
    assert!(until(LONG, || keys(29).contains("q or Ctrl-C ends")), "{}", shown.text());
    shown.press(b"q");
    let (output, text) = shown.ended();
    assert!(output.status.success(), "{output:?}");
    let said = crate::common::all_text(&output);
    assert!(said.contains("tunnel b: ") && text.contains("forwarded 5"), "{said}\n{text}");
}

#[test]
fn signals_do_what_they_do_without_a_view_and_the_terminal_is_given_back() {
    if !is_installed("ip") {
        return;
    }
    for signal in ["TERM", "INT", "Ctrl-C"] {
        let mut shown = Shown::start(&[]);
        shown.running.signal("HUP");
        shown.await_text("reloaded: 1 tunnel");
        match signal {
            "Ctrl-C" => shown.press(b"\x03"),
            signal => shown.running.signal(signal),
        }
        let (output, text) = shown.ended();
        assert!(output.status.success(), "{signal}: {output:?}");
        assert!(crate::common::all_text(&output).contains("reloaded: 1 tunnel"), "{output:?}");
        assert!(text.contains("forwarded "), "{text}");
    }
    let shown = Shown::start(&[]);
    for signal in ["STOP", "TERM", "INT", "CONT"] {
        shown.running.signal(signal);
    }
    let (output, _) = shown.ended();
    // Either the command or the second signal was faster.
    assert!(matches!(output.status.code(), Some(0 | 130)), "{output:?}");
}

#[test]
fn failures_are_told_on_the_terminal_as_it_was() {
    if !is_installed("ip") {
        return;
    }
    let shown = Shown::start(&[]);
    fs::write(&shown.file, "workers = \"many\"").expect("a file");
    shown.running.signal("HUP");
    shown.await_text("not reloaded: ");
    succeed(ip(&["-n", &shown.spaces.near, "link", "delete", "va"]));
    let (output, _) = shown.ended();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = crate::common::all_text(&output);
    assert!(said.contains("not reloaded: ") && said.contains("error: "), "{said}");
}

#[test]
fn plain_terminal_gets_ascii_and_no_colors() {
    if !is_installed("ip") {
        return;
    }
    let mut shown = Shown::start(&[("LC_ALL", "C"), ("NO_COLOR", "1")]);
    shown.send(100);
    shown.await_text("#");
    assert!(shown.text().is_ascii(), "{}", shown.text());
    let colored = |parser: &Parser| {
        let cells = (0..24).flat_map(|row| (0..80).map(move |column| (row, column)));
        let mut cells = cells.filter_map(|(row, column)| parser.screen().cell(row, column));
        cells.any(|cell| cell.fgcolor() != vt100::Color::Default)
    };
    assert!(!colored(&shown.parser()));
    shown.press(b"q");
    shown.ended();
}

#[test]
fn end_of_the_terminal_is_the_end_of_the_command() {
    if !is_installed("ip") {
        return;
    }
    let shown = Shown::start(&[]);
    // As when the connection is lost: nothing can be read or drawn any more.
    let Shown { running, master, terminal, is_closed, reader, .. } = shown;
    is_closed.store(true, Ordering::Relaxed);
    reader.join().expect("the reader ends");
    drop((master, terminal));
    let output = running.finish(LONG).expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        crate::common::all_text(&output).contains("the terminal of --live is gone"),
        "{output:?}"
    );
}

#[test]
fn view_is_refused_without_a_terminal() {
    let data = Data::new();
    let file = data.file("tunnel.toml");
    fs::write(
        &file,
        "[port]\ninterface = \"lan0\"\n[underlay]\ninterface = \"va\"\naddress = \"10.0.0.1\"\n\
         [[tunnel]]\nname = \"b\"\ncarrier = \"vxlan\"\nvni = 42\nremote = \"10.0.0.2\"\n",
    )
    .expect("a file");
    let run = ["tunnel", "run", &file, "--live"];
    let said = fail(crate::common::wirepath(&run), 2);
    assert!(said.contains("--live needs a terminal") && said.lines().count() == 1, "{said}");
    let said = fail(crate::common::wirepath(&[&run[..], &["--json"]].concat()), 2);
    assert!(said.contains("--json") && said.lines().count() == 1, "{said}");
}
