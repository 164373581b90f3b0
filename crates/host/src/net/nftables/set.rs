//! Sets and maps of nftables.

use super::Verdict;

/// A set, or a map if its elements have values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NftSet {
    pub family: &'static str,
    pub table: String,
    pub name: String,
    pub key_bytes: usize,
    /// Elements are the borders of intervals.
    pub is_interval: bool,
    /// Its elements change with the packets, or there are more than were read.
    pub is_unknown: bool,
    pub elements: Vec<SetElement>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetElement {
    /// Network byte order; empty for the element that matches all.
    pub key: Vec<u8>,
    /// Last key of a range of a concatenation.
    pub key_end: Option<Vec<u8>>,
    /// First key beyond an interval.
    pub is_end: bool,
    pub value: Option<Vec<u8>>,
    pub verdict: Option<Verdict>,
}

impl NftSet {
    /// Sorts the elements, as [`Self::find`] needs them.
    pub(super) fn sort(&mut self) {
        // An interval may begin where another ends: its begin counts.
        self.elements.sort_by(|a, b| a.key.cmp(&b.key).then(b.is_end.cmp(&a.is_end)));
    }

    /// Element of a key; `None` if the set has none.
    pub(super) fn find(&self, key: &[u8]) -> Option<&SetElement> {
        let found = if self.elements.iter().any(|element| element.key_end.is_some()) {
            self.elements.iter().find(|element| is_between(key, element))
        } else {
            let after = self.elements.partition_point(|element| element.key.as_slice() <= key);
            let before = after.checked_sub(1).and_then(|at| self.elements.get(at));
            before.filter(|element| {
                !element.is_end
                    && !element.key.is_empty()
                    && (self.is_interval || element.key == key)
            })
        };
        found.or_else(|| self.elements.first().filter(|element| element.key.is_empty()))
    }
}

/// True if each word of the key is in the range of its word: the fields of a concatenation fill words.
fn is_between(key: &[u8], element: &SetElement) -> bool {
    let end = element.key_end.as_deref().unwrap_or(&element.key);
    let words = |bytes| <[u8]>::chunks(bytes, 4);
    !element.key.is_empty()
        && words(key)
            .zip(words(&element.key).zip(words(end)))
            .all(|(key, (low, high))| low <= key && key <= high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(is_interval: bool, elements: &[(&[u8], bool)]) -> NftSet {
        let elements = elements
            .iter()
            .map(|(key, is_end)| SetElement {
                key: key.to_vec(),
                is_end: *is_end,
                ..SetElement::default()
            })
            .collect();
        let (family, table, name) = ("inet", "t".to_owned(), "s".to_owned());
        let (key_bytes, is_unknown) = (2, false);
        let mut set = NftSet { family, table, name, key_bytes, is_interval, is_unknown, elements };
        set.sort();
        set
    }

    #[test]
    fn a_plain_set_has_its_own_keys_only() {
        let set = set(false, &[(&[0, 80], false), (&[0, 22], false)]);
        assert!(set.find(&[0, 22]).is_some() && set.find(&[0, 80]).is_some());
        assert!(set.find(&[0, 50]).is_none() && set.find(&[0, 90]).is_none());
    }

    #[test]
    fn an_interval_ends_before_its_end_and_may_be_followed_by_another_at_once() {
        let borders: [(&[u8], bool); 4] =
            [(&[0, 10], false), (&[0, 20], true), (&[0, 20], false), (&[0, 30], true)];
        let set = set(true, &borders);
        for (port, is_in) in
            [(9, false), (10, true), (19, true), (20, true), (29, true), (30, false)]
        {
            assert_eq!(set.find(&[0, port]).is_some(), is_in, "{port}");
        }
    }

    #[test]
    fn a_range_of_a_concatenation_needs_each_field() {
        let mut set = set(true, &[]);
        set.elements = vec![SetElement {
            key: vec![10, 0, 0, 0, 0, 80, 0, 0],
            key_end: Some(vec![10, 0, 0, 255, 0, 90, 0, 0]),
            ..SetElement::default()
        }];
        assert!(set.find(&[10, 0, 0, 7, 0, 85, 0, 0]).is_some());
        assert!(set.find(&[10, 0, 0, 7, 0, 95, 0, 0]).is_none());
        assert!(set.find(&[10, 0, 1, 7, 0, 85, 0, 0]).is_none());
    }

    #[test]
    fn an_element_without_a_key_matches_all() {
        let set = set(false, &[(&[], false), (&[0, 22], false)]);
        assert_eq!(set.find(&[0, 99]).map(|element| element.key.len()), Some(0));
        assert_eq!(set.find(&[0, 22]).map(|element| element.key.len()), Some(2));
    }
}
