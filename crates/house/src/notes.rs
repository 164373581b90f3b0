//! Messages that arrive while a live view is drawn: kept, and printed when it ends.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// Maximum number of kept lines; the oldest are dropped.
const LINES_MAX: usize = 1000;

#[derive(Debug, Default)]
struct Notes {
    lines: VecDeque<String>,
    count: usize,
}

static KEPT: Mutex<Option<Notes>> = Mutex::new(None);

fn kept() -> MutexGuard<'static, Option<Notes>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts to keep messages, those of panics included.
pub fn begin() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !keep(&panic.to_string()) {
                before(panic);
            }
        }));
    });
    *kept() = Some(Notes::default());
}

/// Keeps a message. Returns false if no view is drawn.
pub fn keep(text: &str) -> bool {
    let mut kept = kept();
    let Some(notes) = kept.as_mut() else { return false };
    notes.lines.extend(text.lines().map(str::to_owned));
    notes.count += text.lines().count();
    let excess = notes.lines.len().saturating_sub(LINES_MAX);
    notes.lines.drain(..excess);
    true
}

pub fn count() -> usize {
    kept().as_ref().map_or(0, |notes| notes.count)
}

/// Kept lines, oldest first.
pub fn lines() -> Vec<String> {
    kept().as_ref().map_or(Vec::new(), |notes| notes.lines.iter().cloned().collect())
}

/// Stops keeping messages. Returns those to print now.
pub fn end() -> Vec<String> {
    let Some(notes) = kept().take() else { return Vec::new() };
    let lost = notes.count - notes.lines.len();
    let first = (lost > 0).then(|| format!("({lost} earlier lines were not kept)"));
    first.into_iter().chain(notes.lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_panics_are_kept_until_the_end_and_the_newest_survive() {
        assert!(!keep("no view"));
        begin();
        let died = std::thread::spawn(|| panic!("a worker's end")).join();
        assert!(died.is_err());
        for n in 0..LINES_MAX {
            assert!(keep(&format!("note {n}\nand more")));
        }
        assert_eq!(lines().len(), LINES_MAX);
        let printed = end();
        assert!(printed[0].contains("earlier lines"), "{}", printed[0]);
        assert_eq!(printed.last().map(String::as_str), Some("and more"));
        begin();
        let _ = std::thread::spawn(|| panic!("a worker's end")).join();
        assert!(end().iter().any(|line| line.contains("a worker's end")));
        assert!(!keep("the view has ended"));
    }
}
