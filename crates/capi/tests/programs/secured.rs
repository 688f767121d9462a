//! Programs in C and C++ over TLS, with passwords, and on masters that sentinels watch. `tests/it`
//! of the library has all cases of TLS and sentinels.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redbolt_test_servers::{
    Authority, Identity, Reply, Sentinels, Server, servers_over_tls, until,
};
use tempfile::TempDir;

use crate::build::{c, cpp};

#[test]
fn a_lock_is_taken_from_c_over_tls_and_each_fault_is_named() {
    let site = Site::new();
    let servers: Vec<_> = (0..3).map(|_| site.server()).collect();
    servers.iter().for_each(lock_up);
    let addresses: Vec<_> = servers.iter().map(Server::tls_address).collect();
    let program = c("tests/c/secured.c");
    let all = site.options();
    let said = |options: &[String]| program.run(&[options, &addresses].concat());
    assert_eq!(program.run_tls_under_valgrind(&[&all[..], &addresses].concat()), DONE);
    let any = ["--danger", "accept-any-certificate"].map(str::to_owned);
    assert_eq!(said(&[&all[2..], &any].concat()), DONE, "without the CA");

    for (options, words) in [
        (&all[2..], "its issuer is not trusted"),
        (&[&all[..2], &all[6..]].concat(), "it wants a client certificate"),
        (&all[..6], "NOAUTH"),
        (
            &[&all[..], &option("--tls-server-name", "nobody.example")].concat(),
            "not for nobody.example",
        ),
    ] {
        let said = said(options);
        // It may have given up before the other nodes were reached.
        let named = addresses.iter().filter(|address| said.contains(address.as_str()));
        assert!(named.count() == 3 && said.contains(words), "{words}: {said}");
    }
}

/// The nodes are connected with and without TLS.
#[test]
fn a_node_that_dies_does_not_end_a_program_in_c() {
    let program = c("tests/c/gone.c");
    let addresses: [fn(&Server) -> String; 3] = [Server::address, Server::tls_address, |server| {
        format!("unix://{}", path(&server.socket()))
    }];
    for address in addresses {
        let [first, second] = &servers_over_tls(2)[..] else { panic!("two") };
        let arguments = |server: &Server| [server.pid().to_string(), address(server)];
        assert_eq!(program.run(&arguments(first)), "still here\n");
        assert_eq!(program.run_tls_under_valgrind(&arguments(second)), "still here\n");
    }
}

/// Invalid settings are reported before anything is connected.
#[test]
fn unusable_files_are_reported_to_c() {
    let program = c("tests/c/secured.c");
    let told = |options: &[String], address: &str, words: &str| {
        let said = program.run(&[options, &[address.to_owned()]].concat());
        assert!(said.starts_with("2: ") && said.contains(words), "{words}: {said}");
    };
    told(&option("--tls-ca", "/nowhere/ca.pem"), "rediss://127.0.0.1", "/nowhere/ca.pem");
    told(&option("--tls-cert", "/nowhere/cert.pem"), "rediss://127.0.0.1", "/nowhere/cert.pem");
    told(&option("--tls-ca", "/nowhere/ca.pem"), "redis://127.0.0.1", "TLS");
    told(&option("--password-file", "/nowhere/pw"), "127.0.0.1", "password file /nowhere/pw");
}

#[test]
fn c_and_cpp_reach_a_master_through_its_sentinel_over_tls() {
    let site = Site::new();
    let master = site.server();
    let own = ["--tls-replication", "yes", "--tls-auth-clients", "yes"];
    let (certificate, key) = (path(&site.server.certificate), path(&site.server.key));
    let client = ["--tls-client-cert-file", &certificate, "--tls-client-key-file", &key];
    let args = [&own[..], &client].concat();
    let sentinel = Server::sentinel_over_tls(&site.authority, site.server.clone(), &args);
    let order = format!("SENTINEL MONITOR jobs 127.0.0.1 {} 1", master.tls_port());
    assert_eq!(sentinel.cmd(&order), ok());
    lock_up(&master);
    lock_up(&sentinel);
    let address = format!("rediss+sentinel://127.0.0.1:{}/jobs", sentinel.tls_port());

    let program = c("tests/c/secured.c");
    let known = [site.options(), option("--sentinel-password", PASSWORD).into()].concat();
    // Two handshakes take longer there.
    let patience = option("--wait", "60000");
    let said = |options: &[String]| {
        let arguments = [options, &patience[..], std::slice::from_ref(&address)].concat();
        program.run_tls_under_valgrind(&arguments)
    };
    assert_eq!(said(&known), DONE);
    let refused = said(&site.options());
    assert!(refused.contains("sentinels must name") && refused.contains("NOAUTH"), "{refused}");

    let Identity { certificate, key } = &site.client;
    let files = [&site.authority.ca(), certificate, key, &site.password].map(|file| path(file));
    let more = [PASSWORD.to_owned(), address.clone()];
    let program = cpp("tests/c/secured.cpp");
    assert_eq!(program.run_tls_under_valgrind(&[&files[..], &more].concat()), DONE);
}

#[test]
fn c_follows_sentinels_to_the_master_that_they_have_promoted() {
    let [mut master, replica] = [Server::start(), Server::start()];
    replica.cmd(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    let is_up = || {
        matches!(replica.cmd("INFO replication"), Reply::Bulk(info)
        if String::from_utf8_lossy(&info).contains("master_link_status:up"))
    };
    until("the replica has its master's memory", LIMIT, is_up).unwrap();
    let silence = std::time::Duration::from_millis(500);
    let sentinels = Sentinels::watching(&[("jobs", &master)], silence);
    sentinels.all().iter().for_each(lock_up);
    let places: Vec<_> = sentinels.all().iter().map(Server::address).collect();
    let address = format!("redis+sentinel://{}/jobs", places.join("+"));
    let program = c("tests/c/secured.c");
    let said = |password| {
        program.run(
            &[&option("--sentinel-password", password)[..], std::slice::from_ref(&address)]
                .concat(),
        )
    };
    assert_eq!(said(PASSWORD), DONE);
    let refused = said("wrong-one");
    assert!(refused.contains("WRONGPASS") && !refused.contains("wrong-one"), "{refused}");
    master.kill();
    // The new master is quarantined for a while, because it may have lost locks.
    let mut told = String::new();
    let is_looked_at = || {
        told = said(PASSWORD);
        told.contains("quarantined")
    };
    until("the promoted replica is looked at", LIMIT, is_looked_at).unwrap();
    assert!(told.contains("its run id changed"), "{told}");
}

/// The limit of each wait.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(20);

/// Certificates for all programs, and a password in a file.
struct Site {
    authority: Arc<Authority>,
    server: Identity,
    client: Identity,
    password: PathBuf,
    _home: TempDir,
}

impl Site {
    fn new() -> Self {
        let authority = Arc::new(Authority::new());
        let home = tempfile::tempdir().unwrap();
        let password = home.path().join("password");
        fs::write(&password, format!("{PASSWORD}\n")).unwrap();
        let (server, client) = (authority.server(), authority.client());
        Self { authority, server, client, password, _home: home }
    }

    /// Starts a server that requires a client certificate.
    fn server(&self) -> Server {
        let identity = self.server.clone();
        Server::over_tls(&self.authority, identity, &["--tls-auth-clients", "yes"])
    }

    /// Returns the options for CA, certificate, key and password, each two words.
    fn options(&self) -> Vec<String> {
        let Identity { certificate, key } = &self.client;
        [
            option("--tls-ca", &path(&self.authority.ca())),
            option("--tls-cert", &path(certificate)),
            option("--tls-key", &path(key)),
            option("--password-file", &path(&self.password)),
        ]
        .concat()
    }
}

/// Makes the server require the password from now on.
fn lock_up(server: &Server) {
    assert_eq!(server.cmd(&format!("ACL SETUSER default resetpass >{PASSWORD}")), ok());
}

fn option(name: &str, value: &str) -> [String; 2] {
    [name.to_owned(), value.to_owned()]
}

fn path(file: &Path) -> String {
    file.display().to_string()
}

fn ok() -> Reply {
    Reply::Status("OK".into())
}

const PASSWORD: &str = "s3cret";
const DONE: &str = "locked and released\n";
