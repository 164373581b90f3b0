//! Causes of what is lost in a trial.

use std::net::UdpSocket;

use wirepath_lab::{LossWatch, Pair, PairSpec, loss_traps};

#[test]
fn datagrams_lost_at_a_full_socket_in_a_trial_are_named_and_none_without_a_loss() {
    let pair = Pair::new(&PairSpec::default()).unwrap();
    let (near, far) = (&pair.near, &pair.far);
    let receiver = near.run(|| UdpSocket::bind((near.ip, 9000))).unwrap().unwrap();
    let sender = far.run(|| UdpSocket::bind((far.ip, 0))).unwrap().unwrap();
    let trial = |count| {
        let watch = LossWatch::begin(&near.netns).unwrap();
        for _ in 0..count {
            sender.send_to(&[0; 1000], (near.ip, 9000)).unwrap();
        }
        watch.end()
    };
    assert_eq!(trial(1), Vec::<String>::new());
    let causes = trial(3000);
    let own = format!("(process {})", std::process::id());
    assert!(
        causes
            .iter()
            .any(|one| one.contains("full receive buffer of UDP port 9000") && one.contains(&own)),
        "{causes:?}"
    );
    let traps = loss_traps("near", &causes);
    assert!(traps[0].what.starts_with("near end, in a trial: "), "{traps:?}");
    drop(receiver);
}
