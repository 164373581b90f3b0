//! "Did you mean": the known name that a misspelt one is closest to.

/// Names and words longer than this are not compared: the work grows with the product of their lengths.
const LEN_MAX: usize = 64;

/// The name with the fewest edits from `word`; the first of equals. `None` if all differ too much to be meant.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let by_distance = names.into_iter().map(|name| (distance(&word, name), name));
    let (edits, name) = by_distance.min_by_key(|(edits, _)| *edits)?;
    (edits <= edits_max(word.chars().count(), name.chars().count())).then_some(name)
}

/// Joint between a mistake and the list of names behind it: `; did you mean NAME? `, or `; `.
pub fn did_you_mean<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, names).map_or_else(|| "; ".to_owned(), |name| format!("; did you mean {name}? "))
}

/// Edits that a typing mistake has: one for short words, a third of longer ones.
fn edits_max(a: usize, b: usize) -> usize {
    match a.max(b) {
        0..=2 => 0,
        len => (len / 3).max(1),
    }
}

/// Insertions, removals, replacements and swaps of neighbours from `a` to `b`; `usize::MAX` if one is too long.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    if a.len() > LEN_MAX || b.len() > LEN_MAX {
        return usize::MAX;
    }
    let (mut before_last, mut last) = (vec![0; b.len() + 1], (0..=b.len()).collect::<Vec<_>>());
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            let is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if is_swap {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 6] = ["spin", "probe", "ping", "bypass", "busy-poll", "zero-copy"];

    #[test]
    fn a_misspelt_name_finds_the_right_one() {
        for (word, name) in [
            ("spinn", "spin"),
            ("prob", "probe"),
            ("pign", "ping"),
            ("Bypass", "bypass"),
            ("busypoll", "busy-poll"),
            ("zerocopy", "zero-copy"),
        ] {
            assert_eq!(nearest(word, NAMES), Some(name), "{word}");
        }
        assert_eq!(did_you_mean("spinn", NAMES), "; did you mean spin? ");
    }

    #[test]
    fn a_word_that_is_like_none_has_no_suggestion() {
        for word in ["", "x", "warp", "throughput", &"spin".repeat(1000)] {
            assert_eq!(nearest(word, NAMES), None, "{word}");
        }
        assert_eq!(nearest("spin", []), None);
        assert_eq!(did_you_mean("warp", NAMES), "; ");
    }
}
