//! Secrets: who gets in, and what can be read or changed between the ends.

use super::*;

#[test]
fn only_the_right_secret_gets_in() {
    let data = Data::new();
    let right = secret(&data, "right", "correct horse battery\n");
    let wrong = secret(&data, "wrong", "incorrect horse battery\n");
    let short = secret(&data, "short", "horse\n");
    let local = Local::new(&["--secret-file", &right]);
    let port = local.at.port().to_string();
    let ping_with = |secret| ping(&port, "10", secret);
    assert!(fail(ping_with(Some(&wrong)), 1).contains("the shared secret is wrong"));
    assert!(fail(ping_with(None), 1).contains("give it with --secret-file"));
    let said = fail(ping_with(Some(&short)), 2);
    assert!(said.contains("shorter than 16 bytes") && said.contains("wirepath secret"), "{said}");
    assert!(fail(ping_with(Some("/nonexistent")), 2).contains("/nonexistent"));
    assert!(succeed(ping_with(Some(&right))).contains("received 10, lost 0"));
    // The other way round: a peer that cannot prove it gets nothing from us.
    let without = Local::new(&[]);
    let other = without.at.port().to_string();
    let said = fail(ping(&other, "10", Some(&right)), 1);
    assert!(said.contains("could not prove that it knows the secret"), "{said}");
    // A peer does not start with a secret that is none.
    assert!(fail(wirepath(&["peer", "--secret-file", &short]), 2).contains("shorter than 16"));
    // Nor with one that other users may read.
    for mode in [0o640, 0o604] {
        fs::set_permissions(&right, fs::Permissions::from_mode(mode)).unwrap();
        let said = fail(wirepath(&["peer", "--secret-file", &right]), 2);
        assert!(said.contains("chmod 600") && said.contains(&format!("{mode:03o}")), "{said}");
    }
}

#[test]
fn secrets_are_made_random_and_readable_by_their_owner_alone() {
    let data = Data::new();
    let file = data.file("key");
    succeed(wirepath(&["secret", "--out", &file]));
    let made = fs::read_to_string(&file).unwrap();
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!((made.len(), mode & 0o777), (65, 0o600));
    let printed = succeed(wirepath(&["secret"]));
    assert!(printed.len() == 65 && printed != made, "{printed}");
    // The other host may have it already.
    let said = fail(wirepath(&["secret", "--out", &file]), 1);
    assert!(said.contains("remove it first"), "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), made);
    let local = Local::new(&["--secret-file", &file]);
    let port = local.at.port().to_string();
    assert!(succeed(ping(&port, "10", Some(&file))).contains("received 10, lost 0"));
}

/// Copies what two streams send into each other until one ends; returns the bytes of `from`.
fn relay(mut from: TcpStream, mut to: TcpStream, flip_at: Option<usize>) -> Vec<u8> {
    let mut all = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut piece) {
        if let Some(at) = flip_at.filter(|at| (all.len()..all.len() + len).contains(at)) {
            piece[at - all.len()] ^= 1;
        }
        all.extend_from_slice(&piece[..len]);
        if to.write_all(&piece[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
    all
}

#[test]
fn between_ends_with_a_secret_nothing_can_be_read_changed_or_used_again() {
    let data = Data::new();
    let file = secret(&data, "right", "correct horse battery\n");
    let local = Local::new(&["--secret-file", &file]);
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = between.local_addr().unwrap().port().to_string();
    let relayed = |flip_at| {
        let near = std::thread::spawn({
            let command = ping(&port, "10", Some(&file));
            move || run(command)
        });
        let (near_side, _) = between.accept().unwrap();
        let far_side = local.connect();
        far_side.set_read_timeout(None).unwrap();
        let back = std::thread::spawn({
            let (from, to) = (far_side.try_clone().unwrap(), near_side.try_clone().unwrap());
            move || relay(from, to, None)
        });
        let forth = relay(near_side, far_side, flip_at);
        (near.join().unwrap(), forth, back.join().unwrap())
    };
    let (output, forth, back) = relayed(None);
    assert!(all_text(&output).contains("received 10, lost 0"), "{}", all_text(&output));
    let handshake = forth.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for (bytes, words) in
        [(&forth[handshake..], ["run", "stop", "task"]), (&back[..], ["ready", "report", "kernel"])]
    {
        let text = String::from_utf8_lossy(bytes);
        assert!(bytes.len() > 100, "{text}");
        words.iter().for_each(|word| assert!(!text.contains(word), "{word} in {text}"));
    }
    // A request that was changed on its way starts no run.
    let (output, ..) = relayed(Some(handshake + 40));
    assert_eq!(output.status.code(), Some(1), "{}", all_text(&output));
    assert!(until(LONG, || local.peer.stderr().contains("not made with the shared secret")));
    assert_eq!(local.peer.stderr().matches("payloads").count(), 1, "{}", local.peer.stderr());
    // A recording opens no other connection.
    let mut again = local.connect();
    again.write_all(&forth).unwrap();
    let mut said = String::new();
    let _ = again.read_to_string(&mut said);
    assert!(said.contains("the shared secret is wrong"), "{said}");
}
