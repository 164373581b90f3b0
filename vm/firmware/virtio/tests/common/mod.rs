//! Helpers of all tests against the fake device.
#![allow(dead_code, reason = "each test binary uses part of it")]

use wirepath_virtio::fake::{Behaviour, FakeDevice, FakeMemory, FakeRegisters, RX};
use wirepath_virtio::net::{NetDriver, POOL_FRAMES, QUEUE_FRAMES, Settings};
use wirepath_virtio::{DeviceFault, StartError};

pub(crate) type Driver = NetDriver<FakeRegisters, FakeMemory>;

pub(crate) const PLAIN: Settings = Settings {
    event_idx: false,
    tx_interrupts: true,
    rx_interrupts: true,
    packed: false,
    indirect: false,
    ring_frames: QUEUE_FRAMES as u16,
};
pub(crate) const EVENT: Settings = Settings { event_idx: true, ..PLAIN };
pub(crate) const SILENT: Settings = Settings { tx_interrupts: false, ..PLAIN };
pub(crate) const EVENT_SILENT: Settings = Settings { tx_interrupts: false, ..EVENT };
pub(crate) const PACKED: Settings = Settings { packed: true, ..PLAIN };
pub(crate) const PACKED_EVENT: Settings = Settings { packed: true, ..EVENT };
pub(crate) const INDIRECT: Settings = Settings { indirect: true, ..PLAIN };

/// Split, packed, split with tables, and packed with tables.
pub(crate) fn both_rings(settings: Settings) -> [Settings; 4] {
    [(false, false), (false, true), (true, false), (true, true)]
        .map(|(packed, indirect)| Settings { packed, indirect, ..settings })
}

/// All combinations of settings.
pub(crate) fn every() -> impl Iterator<Item = Settings> {
    [PLAIN, EVENT, SILENT, EVENT_SILENT].into_iter().flat_map(both_rings)
}

pub(crate) fn try_start(
    behaviour: Behaviour,
    settings: Settings,
) -> Result<(FakeDevice, Driver), StartError> {
    let (device, registers, memory) = FakeDevice::new(behaviour);
    NetDriver::start(registers, memory, settings).map(|driver| (device, driver))
}

pub(crate) fn started(behaviour: Behaviour, settings: Settings) -> (FakeDevice, Driver) {
    try_start(behaviour, settings).expect("the device starts")
}

/// Sends a frame that starts with these bytes.
pub(crate) fn send(driver: &mut Driver, bytes: &[u8]) -> bool {
    let Some(frame) = driver.take_free() else { return false };
    driver.with_frame(&frame, bytes.len(), |to| to.copy_from_slice(bytes));
    match driver.tx_post(frame, bytes.len()) {
        Ok(()) => {
            driver.tx_kick();
            true
        }
        Err(frame) => {
            driver.free(frame);
            false
        }
    }
}

/// Takes the next frame, returns its bytes, and posts it again.
pub(crate) fn take(driver: &mut Driver) -> Option<Result<Vec<u8>, DeviceFault>> {
    Some(driver.rx_take()?.map(|received| {
        let len = received.len_bytes;
        let bytes = driver.with_frame(&received.frame, len, |bytes| bytes.to_vec());
        driver.rx_post(received.frame);
        driver.rx_kick();
        bytes
    }))
}

/// No frame is lost or held, and device and driver agree on the frames the device owns.
pub(crate) fn assert_ledger_balances(device: &FakeDevice, driver: &Driver) {
    let ledger = driver.ledger();
    assert_eq!((ledger.total(), ledger.held_count), (POOL_FRAMES as u32, 0));
    assert_eq!(device.owned_count(RX), usize::from(ledger.receive_count));
}
