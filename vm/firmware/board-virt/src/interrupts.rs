//! GICv3 and the interrupt handlers.

use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use arm_gic::gicv3::{GicCpuInterface, GicV3, SgiTarget, SgiTargetGroup};
use arm_gic::{IntId, InterruptGroup, Trigger, UniqueMmioPointer};
use critical_section::Mutex;

use crate::timer;

const DISTRIBUTOR: usize = 0x0800_0000;
const REDISTRIBUTOR: usize = 0x080a_0000;
/// The virtual timer: private peripheral interrupt 11.
const TIMER: IntId = IntId::ppi(11);
const CONSOLE: IntId = IntId::spi(1);
const SOFTWARE: IntId = IntId::sgi(1);

/// The network interrupt is the most urgent; it nests in the others.
const PRIORITY_NET: u8 = 0x40;
const PRIORITY_SOFTWARE: u8 = 0x60;
const PRIORITY_TIMER: u8 = 0x80;
const PRIORITY_CONSOLE: u8 = 0xa0;

/// A handler, once registered.
type Handler = Option<fn()>;
pub(crate) type Slot = Mutex<Cell<Handler>>;

static GIC: Mutex<RefCell<Option<GicV3<'static>>>> = Mutex::new(RefCell::new(None));
static ON_NET: Slot = Mutex::new(Cell::new(None));
static ON_KEY: Slot = Mutex::new(Cell::new(None));
static ON_SOFTWARE: Slot = Mutex::new(Cell::new(None));
/// Interrupt number of the network card.
static NET: AtomicU32 = AtomicU32::new(u32::MAX);
static DEPTH: AtomicU32 = AtomicU32::new(0);
static NESTED: AtomicU64 = AtomicU64::new(0);

pub(crate) fn open() {
    let distributor = NonNull::new(DISTRIBUTOR as *mut _).expect("it is not 0");
    let redistributor = NonNull::new(REDISTRIBUTOR as *mut _).expect("it is not 0");
    // SAFETY: the distributor's registers, mapped as a device; this is their only handle.
    let distributor = unsafe { UniqueMmioPointer::new(distributor) };
    // SAFETY: the redistributor of the one CPU, mapped as a device; this is its only handle.
    let gic = unsafe { GicV3::new(distributor, redistributor, 1) };
    let mut gic = gic.expect("QEMU was started with gic-version=3");
    gic.setup(0);
    GicCpuInterface::set_priority_mask(0xff);
    critical_section::with(|cs| *GIC.borrow_ref_mut(cs) = Some(gic));
}

fn enable(id: IntId, priority: u8, trigger: Option<Trigger>) {
    critical_section::with(|cs| {
        let mut slot = GIC.borrow_ref_mut(cs);
        let gic = slot.as_mut().expect("the board was started");
        let cpu = id.is_private().then_some(0);
        let set = gic.set_interrupt_priority(id, cpu, priority);
        let triggered = trigger.map_or(Ok(()), |trigger| gic.set_trigger(id, cpu, trigger));
        let enabled = gic.enable_interrupt(id, cpu, true);
        assert!(set.and(triggered).and(enabled).is_ok(), "{id:?} cannot be enabled");
    });
}

pub(crate) fn enable_timer() {
    enable(TIMER, PRIORITY_TIMER, None);
}

/// Registers the handler of shared peripheral interrupt `number`, the network card's.
pub fn on_net(number: u32, handler: fn()) {
    let id = IntId::spi(number);
    NET.store(id.raw_value(), Ordering::Relaxed);
    critical_section::with(|cs| ON_NET.borrow(cs).set(Some(handler)));
    enable(id, PRIORITY_NET, Some(Trigger::Edge));
}

/// Registers the handler of key presses.
pub fn on_key(handler: fn()) {
    critical_section::with(|cs| ON_KEY.borrow(cs).set(Some(handler)));
    enable(CONSOLE, PRIORITY_CONSOLE, Some(Trigger::Level));
}

/// Registers the handler of [`raise`].
pub fn on_software(handler: fn()) {
    critical_section::with(|cs| ON_SOFTWARE.borrow(cs).set(Some(handler)));
    enable(SOFTWARE, PRIORITY_SOFTWARE, None);
}

/// Raises the software interrupt on this CPU.
pub fn raise() {
    let here = SgiTarget::List { affinity3: 0, affinity2: 0, affinity1: 0, target_list: 1 };
    let _ = GicCpuInterface::send_sgi(SOFTWARE, here, SgiTargetGroup::CurrentGroup1);
}

/// Number of interrupts that nested in another.
pub fn nested_count() -> u64 {
    NESTED.load(Ordering::Relaxed)
}

/// Handles one interrupt: acknowledge, run the handler, end, and switch tasks if needed.
pub(crate) fn dispatch() {
    kernel::system::enter_interrupt();
    let group = InterruptGroup::Group1;
    if let Some(id) = GicCpuInterface::get_and_acknowledge_interrupt(group) {
        // Interrupts are masked, and nested handlers restore the value: no atomic operation needed.
        let depth = DEPTH.load(Ordering::Relaxed);
        DEPTH.store(depth + 1, Ordering::Relaxed);
        if depth > 0 {
            NESTED.fetch_add(1, Ordering::Relaxed);
        }
        if id.raw_value() == NET.load(Ordering::Relaxed) {
            // Highest priority: nothing can nest in it.
            call(&ON_NET);
        } else {
            // A more urgent interrupt may nest; the GIC holds back the others.
            unmask();
            match id {
                TIMER => timer::on_interrupt(),
                CONSOLE => call(&ON_KEY),
                SOFTWARE => call(&ON_SOFTWARE),
                _ => {}
            }
            mask();
        }
        DEPTH.store(depth, Ordering::Relaxed);
        GicCpuInterface::end_interrupt(id, group);
    }
    kernel::system::exit_interrupt();
}

fn call(slot: &Slot) {
    if let Some(handler) = critical_section::with(|cs| slot.borrow(cs).get()) {
        handler();
    }
}

fn unmask() {
    // SAFETY: ELR and SPSR are saved in the exception frame; the handlers expect to be
    // interrupted.
    unsafe { core::arch::asm!("msr daifclr, #2", options(nostack)) };
}

fn mask() {
    // SAFETY: masking is always sound.
    unsafe { core::arch::asm!("msr daifset, #2", options(nostack)) };
}
