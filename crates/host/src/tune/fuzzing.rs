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
    use std::fs;
    use std::path::Path;

    #[test]
    fn the_fuzzers_corpus_holds() {
        let replay = |folder: &str, target: fn(&[u8])| {
            let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
            let entries: Vec<_> = fs::read_dir(corpus.join(folder)).unwrap().flatten().collect();
            assert!(entries.len() > 2, "{folder}");
            for entry in entries {
                target(&fs::read(entry.path()).unwrap());
            }
        };
        replay("tune_plan", super::plan);
        replay("tune_journal", super::journal);
    }
}
