//! The driver of `embassy-net`, polled by a future: answers ARP, ICMP and UDP echoes as the responder
//! does, through the tokens, wakers and signal that `embassy-net` uses.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

#[cfg(target_os = "none")]
mod firmware;

/// The host build is empty.
#[cfg(not(target_os = "none"))]
fn main() {}

#[cfg(target_os = "none")]
mod stack {
    use core::cell::Cell;
    use core::future::{Future, poll_fn};
    use core::net::Ipv4Addr;
    use core::pin::pin;
    use core::task::{Context, Poll};

    use adapters::{EmbassyCard, InterruptSignal};
    use board_virt::tree::Machine;
    use board_virt::{Dma, Place, Window};
    use critical_section::Mutex;
    use embassy_net_driver::{Driver, HardwareAddress, RxToken, TxToken};
    use kernel::system::Semaphore;
    use net::{Identity, Outcome};
    use virtio::net::FRAME_BYTES_MAX;

    use super::firmware;

    type Net = EmbassyCard<'static, Window, Dma>;

    board_virt::entry!(main);

    static SIGNAL: InterruptSignal = InterruptSignal::new();
    static CARD: Place<Net> = Place::new();
    static WAKE: Place<Semaphore> = Place::new();
    static STARTED: Mutex<Cell<Option<(&mut Net, Ipv4Addr)>>> = Mutex::new(Cell::new(None));

    fn main(machine: Machine) -> ! {
        let (config, card) = firmware::start(&machine, || SIGNAL.raise());
        let mac = firmware::mac(&card);
        let card = CARD.put(EmbassyCard::new(card, mac, &SIGNAL));
        critical_section::with(|cs| STARTED.borrow(cs).set(Some((card, config.ip))));
        firmware::run(&config, mac, "embassy-net-driver", serve)
    }

    fn serve(_: usize) {
        let started = critical_section::with(|cs| STARTED.borrow(cs).take());
        let (card, ip) = started.expect("set before the start");
        block_on(WAKE.put(Semaphore::new(0)), answer(card, ip))
    }

    /// Polls a future whenever its waker was used.
    fn block_on(wake: &'static Semaphore, future: impl Future<Output = ()>) {
        let waker = board_virt::waker(wake);
        let mut future = pin!(future);
        while future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            let _ = wake.pend(0);
        }
    }

    /// Announces the address, then answers for ever.
    async fn answer(card: &mut Net, ip: Ipv4Addr) {
        let HardwareAddress::Ethernet(mac) = card.hardware_address() else { return };
        let identity = Identity { mac, ip };
        poll_fn(|cx| match card.transmit(cx) {
            Some(token) => {
                announce(token, &identity);
                Poll::Ready(())
            }
            None => Poll::Pending,
        })
        .await;
        poll_fn(|cx| {
            while let Some((received, room)) = card.receive(cx) {
                received.consume(|request| answer_one(request, room, &identity));
            }
            Poll::Pending
        })
        .await
    }

    fn announce(token: impl TxToken, identity: &Identity) {
        let mut frame = [0; FRAME_BYTES_MAX];
        if let Ok(len) = net::write_announcement(&mut frame, identity) {
            token.consume(len, |bytes| bytes.copy_from_slice(&frame[..len]));
        }
    }

    fn answer_one(request: &mut [u8], room: impl TxToken, identity: &Identity) {
        if let Outcome::Answer { len_bytes, .. } = net::answer(request, identity) {
            room.consume(len_bytes, |bytes| bytes.copy_from_slice(&request[..len_bytes]));
        }
    }
}
