//! The card of the guest's machine.

/// A network card that the monitor emulates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Card {
    /// AMD Lance (PCnet-PCI II).
    #[default]
    Lance,
    /// virtio-net over memory-mapped registers.
    VirtioNet,
}

/// First part of the names of loads on a virtio-net card.
const VIRTIO_LOAD: &str = "virtio-";

impl Card {
    /// Name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Card::Lance => "lance",
            Card::VirtioNet => "virtio-net",
        }
    }

    /// The card of a load, and the load's name without it.
    pub(crate) fn of_load(kind: &str) -> (Self, &str) {
        match kind.strip_prefix(VIRTIO_LOAD) {
            Some(rest) => (Card::VirtioNet, rest),
            None => (Card::Lance, kind),
        }
    }

    /// The monitor's model.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn model(self) -> vmm::Model {
        match self {
            Card::Lance => vmm::Model::Lance,
            Card::VirtioNet => vmm::Model::VirtioNet,
        }
    }
}

#[cfg(test)]
mod tests {
    use model::Path;

    use super::*;

    #[test]
    fn every_load_has_its_twin_on_the_other_card() {
        let names: Vec<&str> = crate::Vmnic.loads().iter().map(|load| load.name).collect();
        let of = |card| {
            names.iter().map(|name| Card::of_load(name)).filter(move |found| found.0 == card)
        };
        let lance: Vec<&str> = of(Card::Lance).map(|found| found.1).collect();
        let virtio: Vec<&str> = of(Card::VirtioNet).map(|found| found.1).collect();
        assert_eq!(lance, virtio);
        assert_eq!(lance.len() + virtio.len(), names.len());
    }
}
