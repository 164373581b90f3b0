//! Stamps that XDP programs write in front of frames, as an engine passes them on.

use std::net::UdpSocket;

use sys::clock::realtime_ns;
use testkit::alone;
use testkit::engines::{FAR_PORT, native, open_far, pair, skb};
use wirepath_io::{Engine, EngineSpec, Stamps, on_engine};

#[test]
fn a_datagram_of_af_xdp_has_the_kernels_stamp_and_of_a_veths_driver_none() {
    let _alone = alone();
    let pair = pair();
    let to = (pair.far.ip, FAR_PORT);
    let sender = pair.near.run(|| UdpSocket::bind((pair.near.ip, 0)).expect("bind"));
    let sender = sender.expect("the namespace");
    for (spec, stamps, is_stamped) in [
        (native(), Stamps::Software, true),
        (skb(), Stamps::Software, true),
        (native(), Stamps::Off, false),
        // The driver names the stamps, and its frames have none.
        (native(), Stamps::Hardware, false),
    ] {
        let spec = EngineSpec { stamps, ..spec };
        let mut engine = open_far(&pair, &spec).unwrap_or_else(|why| panic!("{stamps:?}: {why}"));
        // As many as there are frames, so that places are used again.
        for _ in 0..5000 {
            let begun_ns = realtime_ns();
            sender.send_to(&[7; 64], to).expect("send");
            let mut stamp_ns = None;
            let mut taken = 0;
            while taken == 0 {
                taken = on_engine!(&mut engine, engine => engine.rx_take(&mut |arrival| {
                    assert_eq!(arrival.payload, [7; 64]);
                    stamp_ns = arrival.stamp_ns;
                }))
                .expect("receive");
            }
            assert_eq!(stamp_ns.is_some(), is_stamped, "{stamps:?}");
            if let Some(stamp_ns) = stamp_ns {
                assert!((begun_ns..=realtime_ns()).contains(&stamp_ns), "{begun_ns} {stamp_ns}");
            }
        }
    }
}
