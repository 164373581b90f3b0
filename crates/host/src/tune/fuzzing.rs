//! What the fuzz targets hold true of plans and journals.

use super::{Journal, Plan};

/// A plan that is read can be written and read again as the same.
pub fn plan(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(plan) = Plan::parse(text) {
        assert_eq!(Plan::parse(&plan.to_text()).ok(), Some(plan));
    }
}

/// A journal is read or refused; of one that is read, its whole lines can be read again. The
/// bytes are taken as they are, and then as lines whose numbers and checksums are made right,
/// so that what stands behind those is reached.
pub fn journal(bytes: &[u8]) {
    parse(bytes);
    let text = String::from_utf8_lossy(bytes);
    let sealed = text.lines().enumerate().map(|(number, line)| {
        let body = format!("{number} {line}");
        format!("{:08x} {body}\n", crc32fast::hash(body.as_bytes()))
    });
    parse(sealed.collect::<String>().as_bytes());
}

fn parse(bytes: &[u8]) {
    if let Ok(Some(journal)) = Journal::parse(bytes) {
        assert_eq!(journal.cells.len(), journal.states.len());
        assert!(journal.whole_bytes <= bytes.len());
        let whole = Journal::parse(&bytes[..journal.whole_bytes]);
        assert_eq!(whole.ok().flatten().map(|again| again.phase), Some(journal.phase));
    }
}

#[cfg(test)]
mod tests {
    use crate::inputs;

    #[test]
    fn the_fuzzers_corpus_holds_and_so_does_what_is_bent_of_it() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        let mut replay = |folder: &str, target: fn(&[u8])| {
            let inputs = inputs::of(folder);
            assert!(inputs.len() > 2, "{folder}");
            for whole in inputs {
                target(&whole);
                // And what a slip of the pen or a bad disk makes of it.
                for _ in 0..2000 {
                    let mut bent = whole.clone();
                    for _ in 0..=random(3) {
                        let place = random(bent.len());
                        match random(4) {
                            0 => bent[place] ^= 1 << random(8),
                            1 => drop(bent.drain(place..(place + random(40)).min(bent.len()))),
                            2 => bent.insert(place, b"\n \"0=[]{}"[random(9)]),
                            _ => bent.extend_from_within(place..),
                        }
                        if bent.is_empty() {
                            bent.push(b'\n');
                        }
                    }
                    target(&bent);
                }
            }
        };
        replay("tune_plan", super::plan);
        replay("tune_journal", super::journal);
    }
}
