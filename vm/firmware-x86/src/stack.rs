//! The driver as a device of the TCP/IP stack, and the loop that runs both.

use core::net::Ipv4Addr;
use core::sync::atomic::Ordering;

use guest_pages::{boot, report};
use smoltcp::iface::{Config, Interface, PollResult, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpCidr};

use crate::cpu::ticks;
use crate::nic::Nic;
use crate::pages::{Boot, Report};
use crate::{controller, idle, wake};

/// Longest frame without its check sequence, and shortest frame on a wire.
const FRAME_BYTES_MAX: usize = 1514;
const FRAME_BYTES_MIN: usize = 60;
/// Prefix length of the network in every lab.
const PREFIX: u8 = 24;
/// Time after which an interrupt that has not come counts as lost, milliseconds.
const LOST_MS: u64 = 10_000;
/// Ticks a second, for the stack's timers.
const TIMER_HZ: u32 = 100;

/// The driver, with room for one received frame.
struct Port<'a> {
    nic: &'a mut Nic,
    frame: [u8; FRAME_BYTES_MAX],
}

struct Received<'a>(&'a mut [u8]);
struct Sending<'a>(&'a mut Nic);

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, body: F) -> R {
        body(self.0)
    }
}

impl TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, body: F) -> R {
        let mut result = None;
        self.0.send(len.max(FRAME_BYTES_MIN), |frame| {
            let (frame, pad) = frame.split_at_mut(len);
            pad.fill(0);
            result = Some(body(frame));
        });
        result.expect("send() fills every frame")
    }
}

impl Device for Port<'_> {
    type RxToken<'a>
        = Received<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Sending<'a>
    where
        Self: 'a;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Sending<'_>)> {
        // A frame may need an answer: without room for it, the frame waits.
        if !self.nic.tx_ready() {
            return None;
        }
        let copy = &mut self.frame;
        let len = self.nic.receive(|frame| {
            let len = frame.len().min(FRAME_BYTES_MAX);
            copy[..len].copy_from_slice(&frame[..len]);
            len
        })?;
        Some((Received(&mut self.frame[..len]), Sending(self.nic)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        self.nic.tx_ready().then_some(Sending(self.nic))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME_BYTES_MAX;
        capabilities
    }
}

/// Stack and driver.
pub(crate) struct Stack<'a> {
    port: Port<'a>,
    pub(crate) interface: Interface,
    tsc_khz: u64,
}

impl<'a> Stack<'a> {
    /// Starts the stack's timer and gives the driver the address from the boot page.
    pub(crate) fn new(boot: &Boot, nic: &'a mut Nic) -> Self {
        let mac = EthernetAddress(nic.mac());
        let mut port = Port { nic, frame: [0; FRAME_BYTES_MAX] };
        let mut config = Config::new(mac.into());
        config.random_seed = ticks();
        let tsc_khz = boot.tsc_khz();
        let mut interface = Interface::new(config, &mut port, instant(tsc_khz));
        let ip = Ipv4Addr::from(boot.get(boot::IP) as u32);
        interface.update_ip_addrs(|addresses| {
            // The table has room for two.
            let _ = addresses.push(IpCidr::new(ip.into(), PREFIX));
        });
        controller::enable_timer(TIMER_HZ);
        Stack { port, interface, tsc_khz }
    }

    /// Moves frames and calls `work` on the sockets, which returns true if it did any; sleeps when
    /// neither did.
    pub(crate) fn turn(
        &mut self,
        sockets: &mut SocketSet<'_>,
        work: impl FnOnce(&mut Interface, &mut SocketSet<'_>) -> bool,
    ) {
        let interrupts_before = Report::get().get_word(report::INTERRUPTS);
        wake::wake_word().store(0, Ordering::Release);
        let now = instant(self.tsc_khz);
        let polled = self.interface.poll(now, &mut self.port, sockets);
        let worked = work(&mut self.interface, sockets);
        if polled == PollResult::None && !worked {
            let delay = self.interface.poll_delay(now, sockets);
            if delay.is_none_or(|delay| delay.total_micros() > 0) {
                // Without room nothing is received, and the device reports room only if asked.
                if self.port.nic.tx_ready() {
                    self.sleep(interrupts_before);
                } else {
                    self.port.nic.tx_wait();
                }
            }
        }
    }
}

impl Stack<'_> {
    /// Sleeps, and counts an overlong sleep: no interrupt since `interrupts_before`, when the wake
    /// word was cleared, although a frame waits. The monitor writes a frame before it raises the line,
    /// so the interrupt may be late; one that never comes is lost.
    fn sleep(&self, interrupts_before: u64) {
        idle();
        let report = Report::get();
        let is_untold = || report.get_word(report::INTERRUPTS) == interrupts_before;
        if !is_untold() || !self.port.nic.rx_ready() {
            return;
        }
        report.add(report::OVERSLEPT, 1);
        if report.get_word(report::LOST_WAKE_UPS) > 0 {
            // No other comes until that one is acknowledged.
            return;
        }
        let begin = ticks();
        while is_untold() {
            if ticks() - begin > LOST_MS * self.tsc_khz {
                report.add(report::LOST_WAKE_UPS, 1);
                return;
            }
            core::hint::spin_loop();
        }
    }
}

fn instant(tsc_khz: u64) -> Instant {
    Instant::from_micros((u128::from(ticks()) * 1000 / u128::from(tsc_khz)) as i64)
}
