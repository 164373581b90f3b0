//! The virtio-net driver for protocol stacks: a [`Card`] is a device of `smoltcp` (feature
//! `smoltcp`), and in an `EmbassyCard` a driver of `embassy-net` (feature `embassy`).
//!
//! A stack reads received frames where the device wrote them, and writes frames where the device
//! reads them. One kind of frame is copied: the answer that a stack sends while it reads the
//! request, because the memory is borrowed then. Other stacks take the tokens from the card itself.
//!
//! The interrupt handler only wakes the task that polls the stack. The task acknowledges the
//! card, then polls: the card raises no other interrupt until it is acknowledged. A controller that
//! triggers by level must mask the line until then.
#![cfg_attr(
    feature = "smoltcp",
    doc = r#"
## With smoltcp

```
use adapters::{Card, SETTINGS};
use smoltcp::iface::{Config, Interface, PollResult, SocketSet};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};
use virtio::net::NetDriver;
use virtio::{Memory, Registers, StartError};

/// Answers ARP and pings. `sleep` returns after an interrupt of the card.
fn run(
    registers: impl Registers,
    memory: impl Memory,
    now: impl Fn() -> Instant,
    sleep: impl Fn(),
) -> Result<(), StartError> {
    let mut card = Card::new(NetDriver::start(registers, memory, SETTINGS)?);
    let mac = EthernetAddress(card.mac().unwrap_or([2, 0, 0, 0, 0, 2]));
    let mut interface = Interface::new(Config::new(mac.into()), &mut card, now());
    interface.update_ip_addrs(|all| {
        all.push(IpCidr::new(IpAddress::v4(10, 0, 0, 2), 24)).expect("it is the first");
    });
    let mut sockets = SocketSet::new(&mut [][..]);
    loop {
        card.acknowledge()?;
        while interface.poll(now(), &mut card, &mut sockets) != PollResult::None {}
        sleep();
    }
}
```"#
)]
#![cfg_attr(
    feature = "embassy",
    doc = r#"
## With embassy-net

```
use adapters::{Card, EmbassyCard, InterruptSignal, SETTINGS};
use virtio::net::NetDriver;
use virtio::{Memory, Registers, StartError};

static CARD: InterruptSignal = InterruptSignal::new();

/// The handler of the card's interrupt.
fn on_interrupt() {
    CARD.raise();
}

/// The driver, for `embassy_net::new`.
fn start<R: Registers, M: Memory>(
    registers: R,
    memory: M,
) -> Result<EmbassyCard<'static, R, M>, StartError> {
    let card = Card::new(NetDriver::start(registers, memory, SETTINGS)?);
    let mac = card.mac().unwrap_or([2, 0, 0, 0, 0, 2]);
    Ok(EmbassyCard::new(card, mac, &CARD))
}
# fn is_a_driver(_: impl embassy_net_driver::Driver) {}
# fn check(registers: impl Registers, memory: impl Memory) {
#     is_a_driver(start(registers, memory).unwrap());
# }
```"#
)]
#![no_std]
#![forbid(unsafe_code)]

mod card;
#[cfg(feature = "embassy")]
mod embassy;
#[cfg(feature = "smoltcp")]
mod smoltcp;

pub use card::{Card, RxToken, SETTINGS, TxToken};
#[cfg(feature = "embassy")]
pub use embassy::{EmbassyCard, InterruptSignal};
