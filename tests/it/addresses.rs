//! The forms of a node's address, and host names that do not resolve.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use redbolt::{
    Client, Wait,
    report::{Cause, NodeState, Vote},
};
use redbolt_test_servers::{Reply, Server};
use socket2::{Domain, Socket, Type};

use crate::support::{
    client_of, default, exists, held_on, long, patient, patiently, refusal, servers, vouch_for,
    vouched,
};

#[test]
fn unix_sockets() {
    let servers = servers(3);
    let urls = servers.iter().map(|server| format!("unix://{}?db=2", server.socket().display()));
    let client = client_of(patient(urls).new_nodes());
    taken_and_released(&client, &servers, 2);
}

#[test]
fn locks_in_different_databases_are_independent() {
    let servers = servers(3);
    let url = |server: &Server, db: u32| format!("redis://{}/{db}", server.address());
    let one = client_of(patient(servers.iter().map(|server| url(server, 1))).new_nodes());
    let two = client_of(patient(servers.iter().map(|server| url(server, 2))).new_nodes());
    let lock = one.acquire(patiently(b"job")).unwrap();
    taken_and_released(&two, &servers, 2);
    assert!(lock.is_valid());
    assert_eq!(held_on(&servers, "job"), 0, "no key is in database 0");
}

#[test]
fn an_acl_user_authenticates() {
    let server = Server::with(&["--requirepass", "secret"]);
    let mut admin = server.connect();
    admin.cmd("AUTH secret");
    let rules = "+set +eval +evalsha +get +del +pttl +pexpire +select +info +client|setname +client|id +time";
    let made = admin
        .cmd(&format!("ACL SETUSER w@b on >p:/%? ~job ~redbolt:guard ~redbolt:fence:* {rules}"));
    assert_eq!(made, Reply::Status("OK".into()));
    let client = client_of(
        patient([format!("redis://w%40b:p%3A%2F%25%3F@{}/3", server.address())]).new_nodes(),
    );
    let mut lock = client.acquire(patiently(b"job")).unwrap();
    lock.extend(Duration::from_secs(25)).unwrap();
    admin.cmd("SELECT 3");
    assert_eq!(admin.cmd("EXISTS job"), Reply::Int(1));
    assert!(lock.release().is_ok());
    assert_eq!(admin.cmd("EXISTS job"), Reply::Int(0));
    let fenced = client.acquire(patiently(b"job").fenced()).unwrap();
    assert!(fenced.fencing_token().is_some());
    assert!(fenced.release().is_ok());
    assert_eq!(admin.cmd("ACL LOG"), Reply::Array(vec![]), "no command was denied");
}

#[test]
fn a_password_file_is_used_if_the_address_has_no_password() {
    let server = Server::with(&["--requirepass", "secret"]);
    let file = server.socket().with_file_name("password");
    let build = |address: &str| patient([address]).password_file(&file).new_nodes().build();
    let is_wrong = |reason: &str| {
        let error = build(&server.address()).unwrap_err().to_string();
        assert!(error.contains("password: ") && error.contains(reason), "{error}");
    };
    is_wrong("No such file");
    fs::write(&file, "\n").unwrap();
    is_wrong("it is empty");
    fs::write(&file, "secret\n").unwrap();
    let config = build(&server.address()).unwrap();
    assert!(!format!("{config:?}").contains("secret"));
    assert!(Client::new(config).unwrap().acquire(patiently(b"job")).is_ok());

    // The file also works for an ACL user, and blanks are part of the password.
    let user = [&b"ACL"[..], b"SETUSER", b"ann", b"on", b">pw \t", b"~*", b"&*", b"+@all"];
    let mut connection = server.connect();
    connection.cmd("AUTH secret");
    assert_eq!(connection.run(&user), Reply::Status("OK".into()));
    let is_ann_s = |text: &str| {
        fs::write(&file, text).unwrap();
        let config = build(&format!("redis://ann@{}", server.address())).unwrap();
        let client = Client::new(config).unwrap();
        let outcome = client.acquire(patiently(b"job").wait(Wait::Forever));
        outcome.is_ok()
    };
    assert!(is_ann_s("pw \t") && is_ann_s("pw \t\n") && is_ann_s("pw \t\r\n"));
    assert!(!is_ann_s("pw") && !is_ann_s("pw \t\n\n") && !is_ann_s("pw \t\r"));

    fs::write(&file, "wrong").unwrap();
    let own = build(&format!("redis://:secret@{}", server.address())).unwrap();
    assert!(Client::new(own).unwrap().acquire(patiently(b"job")).is_ok());
}

#[test]
fn a_name_is_resolved() {
    let servers = servers(1);
    let address = format!("localhost:{}", servers[0].port());
    let client = client_of(patient([address.clone()]));
    taken_and_released(&client, &servers, 0);
    let report = client.warm_up(Duration::from_secs(5));
    assert_eq!(report.to_string(), format!("1 of 1 ready, 1 needed; node 1 {address}: ready"));
}

#[test]
fn an_unknown_host_name_delays_no_lock() {
    let servers = servers(2);
    vouch_for(&servers, 3);
    let addresses = ["name.invalid:6379".to_owned(), servers[0].address(), servers[1].address()];
    let client = client_of(default(addresses).response_timeout(Duration::from_millis(500)));
    let began = Instant::now();
    for _ in 0..20 {
        let lock = client.acquire(patiently(b"job")).unwrap();
        assert!(matches!(lock.release(), Ok(c) if c.nodes == 2));
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(held_on(&servers, "job"), 0);

    let alone = client_of(patient(["name.invalid"]));
    let report = refusal(alone.acquire(long(b"job")));
    match report.node_votes()[0].vote {
        Some(Vote::Fail(Cause::NameLookup | Cause::ConnectTimeout)) => {}
        other => panic!("{other:?}"),
    }
    assert!(report.to_string().contains("node 1 name.invalid:6379: "), "{report}");
}

#[test]
fn ipv6_addresses_work() {
    if TcpListener::bind("[::1]:0").is_err() {
        eprintln!("this machine has no IPv6 loopback: nothing to test");
        return;
    }
    let server = vouched(Server::with(&["--bind", "127.0.0.1", "::1"]));
    let address = format!("[::1]:{}", server.port());
    let client = client_of(patient([address.clone()]));
    taken_and_released(&client, std::slice::from_ref(&server), 0);
    // Two addresses of one server have one vote.
    let client = client_of(patient([address, server.address()]));
    let report = client.warm_up(Duration::from_secs(5));
    let twins = report.nodes.iter().filter(|node| node.state == NodeState::Down(Cause::SameServer));
    assert_eq!(twins.count(), 1, "{report}");
}

/// Returns an address that drops packets: its listener has a full backlog.
fn black_hole() -> (SocketAddr, Vec<Socket>) {
    let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let listener = socket();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let fill = || {
        let client = socket();
        client.set_nonblocking(true).unwrap();
        // The connect stays pending in the kernel.
        let _ = client.connect(&address);
        client
    };
    let clients: Vec<_> = (0..8).map(|_| fill()).collect();
    (address.as_socket().unwrap(), clients.into_iter().chain([listener]).collect())
}

/// Returns a client of one node, whose host name resolves to these addresses.
fn client_of_name(addresses: Vec<SocketAddr>, connect_timeout: Duration) -> Client {
    let builder = patient(["two.example"]).connect_timeout(connect_timeout);
    client_of(builder.resolve_hosts_by(move |_, _| Ok(addresses.clone())))
}

#[test]
fn a_name_whose_first_address_is_a_black_hole_is_reached_in_one_attempt() {
    let servers = servers(1);
    vouch_for(&servers, 1);
    let (hole, _full) = black_hole();
    let there = servers[0].address().parse().unwrap();
    let connect_timeout = Duration::from_secs(30);
    for addresses in [vec![hole, there], vec![hole, hole, there], vec![there, hole]] {
        let client = client_of_name(addresses, connect_timeout);
        let began = Instant::now();
        let lock = client.acquire(long(b"job").wait(Wait::No)).unwrap();
        assert!(began.elapsed() < connect_timeout / 2, "{:?}", began.elapsed());
        assert!(matches!(lock.release(), Ok(c) if c.nodes == 1));
    }
}

/// The refusal arrives while another address is being tried.
#[test]
fn a_refused_address_does_not_end_the_attempt_of_another_address() {
    let servers = servers(1);
    vouch_for(&servers, 1);
    let (hole, _full) = black_hole();
    let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let there = servers[0].address().parse().unwrap();
    for addresses in [vec![hole, refused, there], vec![refused, hole, refused, there]] {
        let client = client_of_name(addresses, Duration::from_secs(30));
        drop(client.acquire(long(b"job").wait(Wait::No)).unwrap());
    }
}

#[test]
fn a_name_with_only_black_hole_addresses_fails_in_time() {
    let (hole, _full) = black_hole();
    let client = client_of_name(vec![hole, hole, hole], Duration::from_millis(400));
    let report = refusal(client.acquire(long(b"job").wait(Wait::No)));
    assert_eq!(report.node_votes()[0].vote, Some(Vote::Fail(Cause::ConnectTimeout)), "{report}");
}

#[test]
fn a_missing_unix_socket_is_reported() {
    let client = client_of(patient(["unix:///nowhere/redis.sock"]));
    let report = refusal(client.acquire(long(b"job"))).to_string();
    assert!(report.contains("node 1 unix:/nowhere/redis.sock: No such file"), "{report}");
}

fn taken_and_released(client: &Client, servers: &[Server], database: u32) {
    let lock = client.acquire(patiently(b"job")).unwrap();
    let kept = servers.iter().filter(|server| {
        let mut connection = server.connect();
        connection.cmd(&format!("SELECT {database}"));
        connection.cmd("EXISTS job") == Reply::Int(1)
    });
    assert!(kept.count() > servers.len() / 2);
    assert_eq!(servers.iter().any(|server| exists(server, "job")), database == 0);
    match lock.release() {
        Ok(confirmed) => {
            assert!(confirmed.nodes as usize > servers.len() / 2)
        }
        Err(lost) => panic!("{lost}"),
    }
}
