//! Names of kernel functions.

use std::fs;

/// Functions of the running kernel by address.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    /// In ascending order.
    by_address: Vec<(u64, String)>,
}

impl Symbols {
    pub(super) fn read() -> Symbols {
        Symbols::parse(&fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    /// Source: proc(5), /proc/kallsyms: address, kind, name, and the module's name in brackets.
    fn parse(text: &str) -> Symbols {
        let mut by_address: Vec<(u64, String)> = text
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                let address = u64::from_str_radix(words.next()?, 16).ok()?;
                let kind = words.next()?;
                let name = words.next()?;
                // Hidden addresses read as 0.
                (address != 0 && matches!(kind, "t" | "T" | "w" | "W"))
                    .then(|| (address, name.to_owned()))
            })
            .collect();
        by_address.sort_by_key(|(address, _)| *address);
        Symbols { by_address }
    }

    /// True if the kernel hides its addresses.
    pub(super) fn are_hidden(&self) -> bool {
        self.by_address.is_empty()
    }

    /// Returns the function that contains an address, or the address if none is known.
    pub(super) fn name(&self, address: u64) -> String {
        let after = self.by_address.partition_point(|(start, _)| *start <= address);
        match after.checked_sub(1).and_then(|at| self.by_address.get(at)) {
            Some((_, name)) => name.clone(),
            None => format!("{address:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_belongs_to_the_function_before_it() {
        let text = "ffffffff81000000 T _text\nffffffff81000100 t second\t[module]\n\
                    ffffffff81000080 D data\nnonsense\n";
        let symbols = Symbols::parse(text);
        assert_eq!(symbols.name(0xffff_ffff_8100_0090), "_text");
        assert_eq!(symbols.name(0xffff_ffff_8100_0100), "second");
        assert_eq!(symbols.name(0x10), "0x10");
        assert!(!symbols.are_hidden());
    }

    #[test]
    fn hidden_addresses_are_detected() {
        assert!(Symbols::parse("0000000000000000 T _text\n").are_hidden());
    }
}
