//! The queue against a `VecDeque`, with a device that completes in any order.

use std::collections::VecDeque;

use proptest::prelude::*;
use wirepath_virtio::fake::{Behaviour, FakeDevice, RX, TX};
use wirepath_virtio::net::{NetDriver, POOL_FRAMES, Settings};

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None, cases: 256, ..Default::default()
    })]

    #[test]
    fn frames_arrive_once_and_in_order_under_any_sequence_of_operations(
        steps in prop::collection::vec((0u8..6, 0usize..300), 1..120),
        event_idx in any::<bool>(),
        tx_interrupts in any::<bool>(),
        packed in any::<bool>(),
        indirect in any::<bool>(),
        size in prop_oneof![Just(2u32), Just(8), Just(11), Just(256)],
    ) {
        let behaviour =
            Behaviour { sends_at_once: false, queue_frames_max: size, ..Behaviour::default() };
        let (device, registers, memory) = FakeDevice::new(behaviour);
        let settings = Settings {
            event_idx,
            tx_interrupts,
            rx_interrupts: true,
            packed,
            indirect,
            ring_frames: 256,
        };
        let mut driver = NetDriver::start(registers, memory, settings).expect("it is willing");
        let (mut coming, mut going) = (VecDeque::new(), VecDeque::new());
        let mut number = 0_u32;
        for (what, amount) in steps {
            match what {
                0 => for _ in 0..amount {
                    number += 1;
                    let frame = [&number.to_be_bytes()[..], &[1; 30]].concat();
                    if device.receive(&frame) {
                        coming.push_back(number);
                    }
                },
                1 => for _ in 0..amount {
                    let Some(received) = driver.rx_take() else { break };
                    let received = received.expect("the device is compliant");
                    let bytes = driver.with_frame(&received.frame, 4, |bytes| bytes.to_vec());
                    let expected = coming.pop_front().map(u32::to_be_bytes);
                    prop_assert_eq!(Some(&bytes[..]), expected.as_ref().map(|bytes| &bytes[..]));
                    // Half of them are sent on without a copy.
                    if amount % 2 == 0 {
                        driver.rx_post(received.frame);
                    } else if let Err(frame) = driver.tx_post(received.frame, received.len_bytes) {
                        driver.free(frame);
                    } else {
                        going.push_back(bytes);
                    }
                },
                2 => {
                    driver.rx_refill();
                    driver.rx_kick();
                    driver.tx_kick();
                }
                3 => for _ in 0..amount {
                    let Some(frame) = driver.take_free() else { break };
                    number += 1;
                    driver.with_frame(&frame, 4, |to| to.copy_from_slice(&number.to_be_bytes()));
                    match driver.tx_post(frame, 60) {
                        Ok(()) => going.push_back(number.to_be_bytes().to_vec()),
                        Err(frame) => {
                            driver.free(frame);
                            break;
                        }
                    }
                },
                4 => {
                    let mut pick = amount;
                    device.send_waiting(|waiting| { pick = pick.wrapping_mul(31).wrapping_add(7); pick % waiting });
                    for frame in device.take_sent() {
                        let expected = going.pop_front().expect("no more was posted");
                        prop_assert_eq!(&frame[..4], &expected[..]);
                    }
                }
                _ => {
                    prop_assert_eq!(driver.tx_reap().1, None);
                }
            }
            let ledger = driver.ledger();
            prop_assert_eq!((ledger.total(), ledger.held_count), (POOL_FRAMES as u32, 0));
            prop_assert_eq!(ledger.transmit_count, driver.tx_posted());
            prop_assert!(device.owned_count(RX) <= usize::from(ledger.receive_count));
            prop_assert!(device.owned_count(TX) <= usize::from(ledger.transmit_count));
        }
    }
}
