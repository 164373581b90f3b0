use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::encap::Place;
use crate::esp::{OpenError, Protection, SealError};
use crate::run::Live;

/// Keeps the messages.
#[derive(Default)]
struct Notes(Vec<String>);

impl Operator for Notes {
    fn wants_end(&mut self) -> bool {
        false
    }
    fn new_config(&mut self) -> Option<Config> {
        None
    }
    fn note(&mut self, note: &str) {
        self.0.push(note.to_owned());
    }
    fn opened(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn live(&mut self, _: &Live) {}
}

/// A folder with keys for the tunnels `b` and `c`.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["b.keys", "c.keys"] {
        KeyFile::generate().unwrap().write_new(&folder.path().join(name)).unwrap();
    }
    folder
}

fn config(folder: &Path, tunnels: &[(&str, &str)]) -> Config {
    Config::parse(&text(tunnels)).unwrap().in_folder(folder)
}

fn text(tunnels: &[(&str, &str)]) -> String {
    let mut text =
        "[port]\ninterface = \"lan0\"\n[underlay]\ninterface = \"wan0\"\naddress = \"10.0.0.1\"\n"
            .to_owned();
    for (name, encryption) in tunnels {
        let at = name.as_bytes()[0];
        text.push_str(&format!(
            "[[tunnel]]\nname = \"{name}\"\ncarrier = \"vxlan\"\nvni = 7\nremote = \"10.0.0.{at}\"\n{encryption}\n"
        ));
    }
    text
}

const B: (&str, &str) = ("b", "encryption = { keys = \"b.keys\" }");
const C: (&str, &str) = ("c", "encryption = { keys = \"c.keys\" }");

fn of(keyring: &Keyring, config: &Config, position: u64) -> Keyring {
    keyring.of(config, position).unwrap()
}

fn refusal(keyring: &Keyring, config: &Config) -> String {
    chain(&keyring.of(config, 0).expect_err("refused"))
}

/// Number and nonce of the packet at a position.
fn sealed(keyring: &Keyring, name: &str, position: u64) -> Result<(u32, u64), SealError> {
    let mut buffer = [0; 200];
    buffer[64 + 14] = 0x45;
    let place = Place { at: 64, len: 64 };
    let sender = &keyring.by_name[name].association.sender;
    let place = sender.seal(&mut buffer, place, position)?;
    // Behind Ethernet, IP and UDP.
    let esp = &buffer[place.at + 42..];
    let low = u32::from_be_bytes(*esp[4..].first_chunk().unwrap());
    Ok((low, u64::from_be_bytes(*esp[8..].first_chunk().unwrap())))
}

#[test]
fn reload_keeps_numbers_and_window_by_the_name_of_the_tunnel() {
    let folder = folder();
    let first = config(folder.path(), &[B]);
    let before = of(&Keyring::default(), &first, 0);
    let number = sealed(&before, "b", 0).unwrap().0;
    // Another tunnel, and another place in the file.
    let second = config(folder.path(), &[C, B]);
    let after = of(&before, &second, 100);
    let kept = after.associations(&second).unwrap();
    let had = before.associations(&first).unwrap();
    assert!(Arc::ptr_eq(kept[1].as_ref().unwrap(), had[0].as_ref().unwrap()));
    assert_eq!(sealed(&after, "b", 5).unwrap().0, number + 5);
    // The new one counts from now on, and has no numbers for frames of before.
    assert_eq!(sealed(&after, "c", 100).unwrap().0, 1);
    assert_eq!(sealed(&after, "c", 99), Err(SealError::Unreserved));
    assert_eq!(after.ids().count(), 2);
}

#[test]
fn encrypted_tunnel_never_goes_without_keys() {
    let folder = folder();
    let encrypted = config(folder.path(), &[B]);
    let error = Keyring::default().associations(&encrypted).unwrap_err();
    assert!(chain(&error).contains("tunnel b: "), "{error}");
    let plain = config(folder.path(), &[("b", "")]);
    let none = of(&Keyring::default(), &plain, 0);
    assert!(none.associations(&plain).unwrap()[0].is_none());
    assert!(none.associations(&encrypted).is_err());
}

#[test]
fn numbers_and_nonces_of_a_start_are_above_all_that_a_killed_one_could_use() {
    let folder = folder();
    let config = config(folder.path(), &[B]);
    let mut last = (0, 0);
    for _ in 0..3 {
        // Dropped without a word, as by kill -9.
        let keyring = of(&Keyring::default(), &config, 0);
        let first = sealed(&keyring, "b", 0).unwrap();
        assert!(first.0 > last.0 && first.1 > last.1, "{first:?} after {last:?}");
        last = sealed(&keyring, "b", RESERVED - 1).unwrap();
        assert_eq!(sealed(&keyring, "b", RESERVED), Err(SealError::Unreserved));
    }
}

#[test]
fn numbers_are_reserved_before_they_are_needed_also_by_frames_of_other_tunnels() {
    let folder = folder();
    let config = config(folder.path(), &[B]);
    let keyring = of(&Keyring::default(), &config, 0);
    let mut notes = Notes::default();
    // No packet of this tunnel is among all of these.
    for position in (0..=4 * RESERVED).step_by(RESERVED as usize / 4) {
        keyring.maintain(position, &mut notes);
        let next = keyring.by_name["b"].state.borrow().numbers().sequence;
        assert!(next > position + RESERVED / 2, "{next} at {position}");
    }
    assert_eq!(sealed(&keyring, "b", 4 * RESERVED).unwrap().0, 1 + 4 * RESERVED as u32);
    assert_eq!(notes.0, [""; 0]);
    drop(keyring);
    let again = of(&Keyring::default(), &config, 0);
    assert!(sealed(&again, "b", 0).unwrap().0 > 4 * RESERVED as u32);
}

#[test]
fn silent_tunnel_does_not_lose_its_far_end_while_others_send() {
    let folder = folder();
    let config = config(folder.path(), &[B]);
    let keyring = of(&Keyring::default(), &config, 0);
    let sender = &keyring.by_name["b"].association.sender;
    let first = sealed(&keyring, "b", 0).unwrap();
    let mut notes = Notes::default();
    let mut last = sender.next();
    for position in (1..=12).map(|it: u64| it << 30) {
        keyring.maintain(position, &mut notes);
        let number = sender.number(position).unwrap();
        assert!(number >= last && number - last < 1 << 32, "{number} after {last}");
        if position % (3 << 32) == 0 {
            let (_, iv) = sealed(&keyring, "b", position).unwrap();
            assert_eq!(iv - first.1, position, "nonces follow the positions");
            let state = keyring.by_name["b"].state.borrow().numbers();
            assert!(state.iv > iv && state.sequence > number, "{state:?}");
            last = sender.next();
        }
    }
    // One that had its number from before: the next are above it.
    sender.renumber(12 << 30, last - (2 << 20));
    keyring.maintain(12 << 30, &mut notes);
    assert!(sealed(&keyring, "b", 12 << 30).unwrap().0 > last as u32);
    assert_eq!(notes.0, [""; 0]);
}

#[test]
fn clean_end_writes_what_was_received_so_that_a_start_refuses_it() {
    let folder = folder();
    let near = KeyFile::read(&folder.path().join("b.keys")).unwrap();
    near.mirrored().write_new(&folder.path().join("far.keys")).unwrap();
    let config = config(folder.path(), &[B]);
    let far = "encryption = { keys = \"far.keys\" }";
    let swap = |text: &str| text.replace("10.0.0.1", "@").replace("10.0.0.98", "10.0.0.1");
    let text = swap(&text(&[("b", far)])).replace('@', "10.0.0.98");
    let far = Config::parse(&text).unwrap().in_folder(folder.path());
    let far = of(&Keyring::default(), &far, 0);
    let (packet, place) = {
        let mut buffer = vec![0; 300];
        let header =
            [&[0x45, 0, 0, 100, 0, 0, 0, 0, 64, 17, 0, 0], &[10, 0, 0, 98, 10, 0, 0, 1][..]]
                .concat();
        buffer[64 + 12] = 8;
        buffer[64 + 14..64 + 34].copy_from_slice(&header);
        let sender = &far.by_name["b"].association.sender;
        let place = sender.seal(&mut buffer, Place { at: 64, len: 114 }, 0).unwrap();
        (buffer, place)
    };
    let open = |keyring: &Keyring| {
        let protection = Protection::new(keyring.associations(&config).unwrap());
        protection.open(&mut packet.clone(), place).map(|opened| opened.is_some())
    };
    let first = of(&Keyring::default(), &config, 0);
    assert_eq!((open(&first), open(&first)), (Ok(true), Err(OpenError::Replayed)));
    let mut notes = Notes::default();
    first.close(&mut notes);
    let [(_, counts)] = &first.counts()[..] else { panic!("one tunnel") };
    assert_eq!((counts.decrypted_count, counts.replayed_count), (1, 1));
    drop(first);
    let second = of(&Keyring::default(), &config, 0);
    assert_eq!(open(&second), Err(OpenError::Replayed));
    assert_eq!(notes.0, [""; 0]);
}

#[test]
fn lost_copied_and_foreign_state_is_refused() {
    let folder = folder();
    let config = config(folder.path(), &[B]);
    let [keys, state] = ["b.keys", "b.keys.state"].map(|name| folder.path().join(name));
    let fresh = std::fs::read(&keys).unwrap();
    let keyring = of(&Keyring::default(), &config, 0);
    assert!(refusal(&Keyring::default(), &config).contains("in use by another"));
    drop(keyring);
    let kept = std::fs::read(&state).unwrap();
    std::fs::remove_file(&state).unwrap();
    let error = refusal(&Keyring::default(), &config);
    assert!(error.contains("tunnel b: ") && error.contains("is missing"), "{error}");
    // Restored from a copy.
    let aside = folder.path().join("aside");
    std::fs::write(&aside, kept).unwrap();
    std::fs::rename(&aside, &state).unwrap();
    assert!(refusal(&Keyring::default(), &config).contains("is a copy"));
    // Old keys that look fresh, as from a copy of before the first start.
    let old = String::from_utf8(fresh).unwrap().replace("made = ", "made = 1\n# ");
    std::fs::write(&keys, old).unwrap();
    std::fs::remove_file(&state).unwrap();
    assert!(refusal(&Keyring::default(), &config).contains("is missing"));
    std::fs::remove_file(&keys).unwrap();
    KeyFile::generate().unwrap().write_new(&keys).unwrap();
    drop(of(&Keyring::default(), &config, 0));
    std::fs::remove_file(&keys).unwrap();
    KeyFile::generate().unwrap().write_new(&keys).unwrap();
    assert!(refusal(&Keyring::default(), &config).contains("state of another key"));
}

#[test]
fn keys_of_two_tunnels_and_other_settings_for_the_same_keys_are_refused() {
    let folder = folder();
    let keyring = of(&Keyring::default(), &config(folder.path(), &[B]), 0);
    let straight = ("b", "encryption = { keys = \"b.keys\", framing = \"ip\" }");
    let error = refusal(&keyring, &config(folder.path(), &[straight]));
    assert!(error.contains("with other settings"), "{error}");
    std::fs::copy(folder.path().join("b.keys"), folder.path().join("d.keys")).unwrap();
    let copy = ("d", "encryption = { keys = \"d.keys\", state = \"d.state\" }");
    let twice = config(folder.path(), &[B, copy]);
    // The copy has the mark of use, and no state.
    assert!(refusal(&keyring, &twice).contains("d.state is missing"));
    let mut text = std::fs::read_to_string(folder.path().join("d.keys")).unwrap();
    text = text.replace("used = true\n", "");
    std::fs::write(folder.path().join("d.keys"), text).unwrap();
    assert!(refusal(&keyring, &twice).contains("another tunnel has"));
}
