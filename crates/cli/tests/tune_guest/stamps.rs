//! Hardware receive stamps of a card that promises them and delivers none.

use crate::common::rig::{FarEnd, Rig};

/// The stamps are on during a run only: a run that finds them off says that it switches them on.
pub(crate) fn are_on_for_a_run_and_off_after_it_however_it_ends(rig: &Rig) {
    FarEnd { rig, inside: "ip netns exec far" }.start("probe echo -i far");
    let ping = "wirepath probe ping 10.81.0.2 --no-peer -i intel --stamps hardware";
    let on = "receive stamps of intel are on";
    for _ in 0..2 {
        let ran = rig.run(&format!("{ping} -c 20 --json"));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(ran.stderr.contains(on), "{}", ran.stderr);
        let document: serde_json::Value = serde_json::from_str(&ran.stdout).expect("a document");
        let notes = document["not_effective"].to_string();
        assert!(notes.contains("none of the datagrams carried a stamp"), "{document}");
    }
    let killed = rig.succeed(&format!(
        "{ping} --time 60s 2>/tmp/killed.err &
         n=0
         until grep -q 'are on' /tmp/killed.err; do
             n=$((n + 1)); [ $n -lt 300 ] || exit 9
             sleep 0.1
         done
         kill -9 $!
         wait $! || true
         sleep 0.5
         {ping} -c 5 2>&1 >/dev/null
         kill $(cat /tmp/far.pid)"
    ));
    assert!(killed.contains(on), "{killed}");
    let software = rig.run("wirepath probe receive -i vio --stamps hardware --time 1s");
    assert_eq!(software.code, 3, "{}", software.stderr);
    assert!(software.stderr.contains("takes no hardware receive"), "{}", software.stderr);
}
