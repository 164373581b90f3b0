//! The terminal as a thing that is taken and given back.

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

use super::notes;
use crate::{console, stop};

/// Ctrl-C, which raw mode makes a key.
const INTERRUPT: u8 = 3;

/// What is typed.
pub(super) struct Keys(File);

impl Keys {
    /// Not through the library's events: their reader spins for ever once the terminal is gone.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Keys(io::stdin().as_fd().try_clone_to_owned()?.into()))
    }

    /// Whether q or Ctrl-C was typed since.
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
    // Last: notes are told when everything is as it was.
    _notes: Notes,
}

impl Taken {
    pub(super) fn take() -> io::Result<Self> {
        let second = Second::take()?;
        notes::begin();
        // Dropped on an error below, which gives back what was taken until then.
        let taken = Taken { _second: second, _notes: Notes };
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen)?;
        Ok(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

/// Where this fails there is no terminal any more.
fn give_back() {
    let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}

/// Tells all notes when dropped.
struct Notes;

impl Drop for Notes {
    fn drop(&mut self) {
        for note in notes::end() {
            console::say(&note);
        }
    }
}

/// Who answers a second SIGINT or SIGTERM: it ends the process as ever, and the terminal is given
/// back before. A handler could not do that; a thread can, however busy the command is.
struct Second {
    signals: Vec<SigId>,
}

impl Second {
    fn take() -> io::Result<Self> {
        let (mut arrivals, sender) = UnixStream::pair()?;
        let mut second = Second { signals: Vec::new() };
        stop::leave_second();
        for signal in stop::SIGNALS {
            second.signals.push(pipe::register(signal, sender.try_clone()?)?);
        }
        thread::Builder::new().name("live-signals".into()).spawn(move || {
            let mut arrived = [0];
            for _ in 0..2 {
                // Nobody sends any more once the signals are unregistered.
                if !matches!(arrivals.read(&mut arrived), Ok(1)) {
                    return;
                }
            }
            give_back();
            exit(stop::SECOND_CODE);
        })?;
        Ok(second)
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        for signal in self.signals.drain(..) {
            unregister(signal);
        }
        // Without it the first signal still asks.
        let _ = stop::end_on_second();
    }
}
