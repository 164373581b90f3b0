//! Taking and restoring the terminal.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use signal_hook::SigId;
use signal_hook::low_level::{exit, pipe, unregister};

use house::{console, notes, signals};

/// Ctrl-C, which is a key in raw mode.
const INTERRUPT: u8 = 3;

pub(super) struct Keys(File);

impl Keys {
    /// Does not use crossterm's events: their reader spins forever once the terminal is gone.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Keys(io::stdin().as_fd().try_clone_to_owned()?.into()))
    }

    /// True if q or Ctrl-C was typed since the last call.
    pub(super) fn ask_for_end(&mut self) -> io::Result<bool> {
        if sys::poll::readable(&[self.0.as_fd()], Duration::ZERO)? == 0 {
            return Ok(false);
        }
        let mut typed = [0; 64];
        match self.0.read(&mut typed) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => Ok(typed[..len].iter().any(|key| matches!(*key, b'q' | INTERRUPT))),
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// Raw mode and the alternate screen, until dropped.
pub(super) struct Taken {
    _second: Second,
    // Last: notes are written after the terminal is restored.
    _notes: Notes,
}

impl Taken {
    pub(super) fn take() -> io::Result<Self> {
        let second = Second::take()?;
        notes::begin();
        // Dropped on an error below, which restores the terminal.
        let taken = Taken { _second: second, _notes: Notes };
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen)?;
        Ok(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        restore();
    }
}

/// Errors are ignored: they mean that the terminal is gone.
fn restore() {
    let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}

/// Writes all notes on drop.
struct Notes;

impl Drop for Notes {
    fn drop(&mut self) {
        for note in notes::end() {
            console::say(&note);
        }
    }
}

/// Restores the terminal before a second SIGINT or SIGTERM ends the process. A signal handler cannot do
/// that; a thread can, however busy the command is.
struct Second {
    signals: Vec<SigId>,
}

impl Second {
    fn take() -> io::Result<Self> {
        let (mut arrivals, sender) = UnixStream::pair()?;
        let mut second = Second { signals: Vec::new() };
        signals::release_second();
        for signal in signals::SIGNALS {
            second.signals.push(pipe::register(signal, sender.try_clone()?)?);
        }
        thread::Builder::new().name("live-signals".into()).spawn(move || {
            let mut arrived = [0];
            for _ in 0..2 {
                // Ends when the signals are unregistered, which closes the other end.
                if !matches!(arrivals.read(&mut arrived), Ok(1)) {
                    return;
                }
            }
            restore();
            exit(signals::INTERRUPTED_EXIT_CODE);
        })?;
        Ok(second)
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        for signal in self.signals.drain(..) {
            unregister(signal);
        }
        // If this fails, the first signal still requests the end.
        let _ = signals::exit_on_second();
    }
}
