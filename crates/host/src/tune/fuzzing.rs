//! Properties of plans and journals that the fuzz targets check.

use super::{Journal, Plan};

/// A plan that parses survives formatting and parsing.
pub fn plan(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(plan) = Plan::parse(text) {
        assert_eq!(Plan::parse(&plan.to_text()).ok(), Some(plan));
    }
}

/// The complete lines of a journal that parses can be parsed again. The bytes are used unchanged, and
/// then as lines with correct numbers and checksums, to reach the code behind those checks.
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
        assert_eq!(journal.entries.len(), journal.states.len());
        assert!(journal.whole_bytes <= bytes.len());
        let whole = Journal::parse(&bytes[..journal.whole_bytes]);
        assert_eq!(whole.ok().flatten().map(|again| again.phase), Some(journal.phase));
    }
}

#[cfg(test)]
mod tests {

    #[test]
    fn properties_hold_for_the_corpus_and_mutations_of_it() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        let mut replay = |folder: &str, target: fn(&[u8])| {
            let inputs = testkit::corpus::inputs(folder);
            assert!(inputs.len() > 2, "{folder}");
            for whole in inputs {
                target(&whole);
                // Mutations, like typing errors and disk faults.
                for _ in 0..2000 {
                    let mut mutated = whole.clone();
                    for _ in 0..=random(3) {
                        let place = random(mutated.len());
                        match random(4) {
                            0 => mutated[place] ^= 1 << random(8),
                            1 => {
                                drop(mutated.drain(place..(place + random(40)).min(mutated.len())))
                            }
                            2 => mutated.insert(place, b"\n \"0=[]{}"[random(9)]),
                            _ => mutated.extend_from_within(place..),
                        }
                        if mutated.is_empty() {
                            mutated.push(b'\n');
                        }
                    }
                    target(&mutated);
                }
            }
        };
        replay("tune_plan", super::plan);
        replay("tune_journal", super::journal);
    }
}
