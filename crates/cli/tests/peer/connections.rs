//! Connections that say nonsense, too much, too slowly, or nothing.

use super::*;

#[test]
fn it_outlives_nonsense() {
    let mut local = Local::new(&[]);
    for nonsense in [&b"\n"[..], b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b"\xff\xfe\0\0\n", b"{\"a\":"]
    {
        let mut stream = local.connect();
        stream.write_all(nonsense).unwrap();
        drop(stream);
        local.assert_serves();
    }
    // Nonsense once the doors are open.
    for nonsense in ["null", "{\"run\":{}}", "{\"stop\":1}", "[[[[", "\"stop\" \"stop\""] {
        let mut it = Conversation::open(&local);
        it.0.get_mut().write_all(format!("{nonsense}\n").as_bytes()).unwrap();
        let mut rest = String::new();
        // It may answer or hang up; it must not wait for more.
        let _ = it.0.read_to_string(&mut rest);
        local.assert_serves();
    }
    let mut it = Conversation::open(&local);
    it.say(&json!("stop"));
    assert!(it.hear()["error"]["why"].as_str().unwrap().contains("no run is in progress"));
    // Sizes that no engine has.
    let mut task = sending(9001, 9000, 10);
    for (field, value) in [("payload_bytes", json!(1)), ("flows", json!(100_000))] {
        let right = task["run"]["task"][field].take();
        task["run"]["task"][field] = value;
        it.say(&task);
        assert!(it.hear()["error"]["why"].as_str().unwrap().contains("out of range"));
        task["run"]["task"][field] = right;
    }
    // The system-call filter ends a process that sets io_uring up.
    task["run"]["task"]["role"] = json!("echo");
    task["run"]["task"]["engine"]["receiving"] = json!("io-uring");
    it.say(&task);
    assert!(it.hear()["error"]["why"].as_str().unwrap().contains("does not receive by io_uring"));
    drop(it);
    local.assert_serves();
}

#[test]
fn a_line_without_end_is_cut_off() {
    let mut local = Local::new(&[]);
    for welcome in [false, true] {
        let mut stream =
            if welcome { Conversation::open(&local).0.into_inner() } else { local.connect() };
        stream.set_write_timeout(Some(LONG)).unwrap();
        let piece = vec![b'x'; 1 << 16];
        // It hangs up before all of it is written, or reads no further.
        let written = (0..32).take_while(|_| stream.write_all(&piece).is_ok()).count();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(written > 0);
        drop(stream);
        local.assert_serves();
    }
}

#[test]
fn a_line_that_comes_slowly_is_read_whole() {
    let local = Local::new(&[]);
    let mut it = Conversation::open(&local);
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    let line = format!("{}\n", sending(near.local_addr().unwrap().port(), free_port(), 1000));
    let (head, tail) = line.split_at(line.len() / 2);
    it.0.get_mut().write_all(head.as_bytes()).unwrap();
    // Longer than it looks at a time.
    std::thread::sleep(Duration::from_millis(300));
    it.0.get_mut().write_all(tail.as_bytes()).unwrap();
    assert!(it.hear().get("ready").is_some());
}

#[test]
fn who_comes_when_no_thread_is_left_is_turned_away_and_served_later() {
    let threads = Without::Threads;
    if !Group::is_there(threads) {
        return;
    }
    let mut local = Local::new(&[]);
    let group = Group::around(&local.peer, threads);
    let port = local.at.port().to_string();
    fail(ping(&port, "20", None), 1);
    local.peer.await_stderr("no thread could be started");
    group.relieve(threads);
    local.assert_serves();
    drop(local);
}

#[test]
fn a_connection_that_says_nothing_does_not_block_it_for_long() {
    let mut local = Local::new(&[]);
    let mute = local.connect();
    local.assert_serves();
    drop(mute);
}

#[test]
fn a_near_end_that_asks_for_nothing_is_disconnected_and_the_next_is_served() {
    let mut local = Local::new(&[]);
    let mut silent = Conversation::open(&local);
    let port = local.at.port().to_string();
    assert!(fail(ping(&port, "1", None), 1).contains("busy"));
    local.assert_serves();
    let said = silent.hear();
    let why = said["error"]["why"].as_str().unwrap();
    assert!(why.contains("no run was requested for 20 s"), "{said}");
    assert_eq!(silent.0.read(&mut [0]).unwrap(), 0, "the connection is closed");
    // Signs of life are no requests.
    let mut lively = Conversation::open(&local);
    let told = local.peer.stderr();
    let served = until(LONG, || {
        let _ = lively.0.get_mut().write_all(b"\n");
        std::thread::sleep(Duration::from_millis(200));
        local.peer.stderr()[told.len()..].contains("no run was requested")
    });
    assert!(served, "{}", local.peer.stderr());
}

#[test]
fn silent_connections_from_34_addresses_of_one_network_keep_no_near_end_out() {
    let (spaces, data) = (Spaces::new(), Data::new());
    let right = secret(&data, "right", "correct horse battery\n");
    // A far address each, which has its own near address.
    for n in 100..134 {
        let (near, far) = (format!("10.77.0.{n}"), format!("10.77.1.{n}"));
        let add = |space: &str, address: &str, link: &str| {
            let address = format!("{address}/32");
            succeed(common::ip(&["-n", space, "address", "add", &address, "dev", link]));
        };
        add(&spaces.near, &near, "va");
        add(&spaces.far, &far, "vb");
        let route = ["-n", &spaces.near, "route", "add", &far, "dev", "va", "src", &near];
        succeed(common::ip(&route));
    }
    let mut peer =
        Running::start(spaces.far(&["peer", "--listen", "0.0.0.0:7117", "--secret-file", &right]));
    peer.await_stderr("listening on ");
    let space = Netns::open(format!("/run/netns/{}", spaces.near)).unwrap();
    let servers = (100..134).map(|n| SocketAddr::from(([10, 77, 1, n], 7117))).collect();
    let strangers = Strangers::start(&space, servers);
    assert!(until(LONG, || strangers.connected() >= 40), "they return");
    for _ in 0..5 {
        let near = ["probe", "ping", FAR_IP, "-c", "5", "--secret-file", &right];
        assert!(succeed(spaces.near(&near)).contains("received 5, lost 0"));
    }
    peer.await_stderr("closed for another connection");
}
