//! Names of kernel functions.

use std::fs;

/// Functions of the running kernel by address.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    /// With the module, in ascending order.
    by_address: Vec<(u64, String, Option<String>)>,
}

impl Symbols {
    pub(crate) fn read() -> Symbols {
        Symbols::parse(&fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    /// Source: proc(5), /proc/kallsyms: address, kind, name, and the module's name in brackets.
    pub(crate) fn parse(text: &str) -> Symbols {
        let mut by_address: Vec<_> = text
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                let address = u64::from_str_radix(words.next()?, 16).ok()?;
                let kind = words.next()?;
                let name = words.next()?;
                let module = words.next().map(|word| word.trim_matches(['[', ']']).to_owned());
                // Hidden addresses read as 0.
                (address != 0 && matches!(kind, "t" | "T" | "w" | "W"))
                    .then(|| (address, name.to_owned(), module))
            })
            .collect();
        by_address.sort_by_key(|(address, ..)| *address);
        Symbols { by_address }
    }

    /// True if the kernel hides its addresses.
    pub(crate) fn are_hidden(&self) -> bool {
        self.by_address.is_empty()
    }

    /// Returns the function that contains an address, or the address if none is known.
    pub(crate) fn name(&self, address: u64) -> String {
        self.find(address).map_or_else(|| format!("{address:#x}"), |(_, name, _)| name.clone())
    }

    /// Returns the module of the function that contains an address; `None` if it is built in.
    pub(crate) fn module(&self, address: u64) -> Option<String> {
        self.find(address)?.2.clone()
    }

    fn find(&self, address: u64) -> Option<&(u64, String, Option<String>)> {
        let after = self.by_address.partition_point(|(start, ..)| *start <= address);
        self.by_address.get(after.checked_sub(1)?)
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
        assert_eq!(symbols.module(0xffff_ffff_8100_0110).as_deref(), Some("module"));
        assert_eq!(symbols.module(0xffff_ffff_8100_0090), None);
        assert!(!symbols.are_hidden());
    }

    #[test]
    fn hidden_addresses_are_detected() {
        assert!(Symbols::parse("0000000000000000 T _text\n").are_hidden());
    }
}
