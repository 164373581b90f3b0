//! One line of QEMU's trace log.
//!
//! Source: QEMU, docs/devel/tracing.rst, and the trace-events files of hw/virtio, hw/char, hw/gpio and hw/net.

/// A line with an event that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    /// CLOCK_REALTIME, microseconds as nanoseconds; `None` without `-msg timestamp=on`.
    pub(super) at_ns: Option<u64>,
    pub(super) event: Event,
}

/// Direction of a buffer's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    FromGuest,
    ToGuest,
    /// A request with its answer, as of a control queue or a disk.
    Both,
}

/// Devices, queues and elements are QEMU's addresses of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The guest notifies a virtio device.
    Doorbell {
        device: u64,
        number: u64,
        queue: u64,
    },
    /// A virtio device notifies the guest.
    Notification {
        device: u64,
        queue: u64,
    },
    /// The guest sets the state of a virtio device, or the machine resets it.
    Status {
        device: u64,
    },
    /// A device takes a buffer.
    Taken {
        queue: u64,
        element: u64,
        way: Way,
    },
    /// A device completes a buffer: the first one of a frame, or a further one.
    Completed {
        queue: u64,
        element: u64,
        is_first: bool,
    },
    /// Interrupt line of a virtio device on the MMIO bus.
    MmioLine {
        level: bool,
    },
    /// Interrupt line of another card.
    CardLine {
        level: bool,
    },
    /// Message-signalled interrupt of another card.
    CardMessage,
    /// Registers of the console.
    Pl011 {
        register: u64,
    },
    Serial {
        register: u64,
        value: u64,
    },
    /// Output of a PL061.
    Pin {
        level: bool,
    },
}

impl Line {
    /// `None` of a line that is not one of these events.
    pub(super) fn parse(line: &[u8]) -> Option<Line> {
        let line = std::str::from_utf8(line).ok()?.trim_end();
        let (at_ns, rest) = match line.split_once('@') {
            Some((thread, rest)) if thread.parse::<u32>().is_ok() => {
                let (time, rest) = rest.split_once(':')?;
                (Some(nanoseconds(time)?), rest)
            }
            _ => (None, line),
        };
        let (name, arguments) = rest.split_once(' ').unwrap_or((rest, ""));
        Some(Line { at_ns, event: event(name, arguments)? })
    }
}

/// Time as `SECONDS.MICROSECONDS`.
fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, microseconds) = text.split_once('.')?;
    let microseconds: u64 = microseconds.parse().ok().filter(|part| *part < 1_000_000)?;
    let seconds: u64 = seconds.parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(microseconds * 1000)
}

fn event(name: &str, arguments: &str) -> Option<Event> {
    Some(match name {
        "virtio_queue_notify" => Event::Doorbell {
            device: field(arguments, "vdev")?,
            number: field(arguments, "n")?,
            queue: field(arguments, "vq")?,
        },
        "virtio_notify" | "virtio_notify_irqfd" => Event::Notification {
            device: field(arguments, "vdev")?,
            queue: field(arguments, "vq")?,
        },
        "virtio_set_status" => Event::Status { device: field(arguments, "vdev")? },
        "virtqueue_pop" => Event::Taken {
            queue: field(arguments, "vq")?,
            element: field(arguments, "elem")?,
            way: match (field(arguments, "in_num")?, field(arguments, "out_num")?) {
                (0, _) => Way::FromGuest,
                (_, 0) => Way::ToGuest,
                _ => Way::Both,
            },
        },
        "virtqueue_fill" => Event::Completed {
            queue: field(arguments, "vq")?,
            element: field(arguments, "elem")?,
            is_first: field(arguments, "idx")? == 0,
        },
        "virtio_mmio_setting_irq" => Event::MmioLine { level: field(arguments, "IRQ")? != 0 },
        "pcnet_isr_change" => {
            Event::CardLine { level: arguments.split_once("INTA=")?.1.starts_with('1') }
        }
        "e1000e_irq_legacy_notify" => Event::CardLine { level: last_number(arguments)? != 0 },
        "e1000e_irq_msi_notify" | "e1000e_irq_msix_notify_vec" => Event::CardMessage,
        "pl011_write" => Event::Pl011 { register: field(arguments, "addr")? },
        "serial_write" => {
            Event::Serial { register: field(arguments, "addr")?, value: field(arguments, "val")? }
        }
        "pl061_set_output" => Event::Pin { level: last_number(arguments)? != 0 },
        _ => return None,
    })
}

/// The number that follows a word.
fn field(arguments: &str, key: &str) -> Option<u64> {
    let mut words = arguments.split_ascii_whitespace();
    words.find(|word| *word == key)?;
    number(words.next()?)
}

fn last_number(arguments: &str) -> Option<u64> {
    number(arguments.split_ascii_whitespace().next_back()?)
}

fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_qemu_are_read() {
        let line = b"28914@1796078496.145219:virtio_queue_notify vdev 0x55 n 1 vq 0x7ff0\n";
        let event = Event::Doorbell { device: 0x55, number: 1, queue: 0x7ff0 };
        let at_ns = Some(1_796_078_496_145_219_000);
        assert_eq!(Line::parse(line), Some(Line { at_ns, event }));
        for (line, event) in [
            (
                "virtqueue_pop vq 0x1 elem 0x2 in_num 0 out_num 1",
                Event::Taken { queue: 1, element: 2, way: Way::FromGuest },
            ),
            (
                "virtqueue_fill vq 0x1 elem 0x2 len 0 idx 0",
                Event::Completed { queue: 1, element: 2, is_first: true },
            ),
            ("virtio_notify vdev 0x3 vq 0x1", Event::Notification { device: 3, queue: 1 }),
            ("virtio_mmio_setting_irq virtio_mmio setting IRQ 1", Event::MmioLine { level: true }),
            ("pl061_set_output /machine/x[6] setting output 0 to 1", Event::Pin { level: true }),
            ("pl011_write addr 0x00000000 value 0x00000065", Event::Pl011 { register: 0 }),
            ("serial_write write addr 0x03 val 0x83", Event::Serial { register: 3, value: 0x83 }),
            ("pcnet_isr_change s=0x55 INTA=1<=0", Event::CardLine { level: true }),
            ("e1000e_irq_legacy_notify IRQ line state: 0", Event::CardLine { level: false }),
        ] {
            assert_eq!(Line::parse(line.as_bytes()), Some(Line { at_ns: None, event }), "{line}");
        }
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            "",
            "@",
            "1@",
            "1@2.3",
            "1@2.9999999:virtio_notify vdev 0x3 vq 0x1",
            "1@99999999999999999999.1:virtio_notify vdev 0x3 vq 0x1",
            "virtio_notify vdev 0x3 vq",
            "virtio_notify vdev 0x3 vq 0x10000000000000000",
            "virtqueue_alloc_element elem 0x1 size 56 in_num 0 out_num 1",
            "pcnet_isr_change",
            "qemu-system-aarch64: warning",
        ] {
            assert_eq!(Line::parse(line.as_bytes()), None, "{line}");
        }
        assert_eq!(Line::parse(b"virtio_notify vdev 0x3 vq 0x1\xff"), None);
    }
}
