//! Nodes that are reached over TLS.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::thread;

use nix::sys::stat::Mode;
use redbolt_test_servers::{Authority, Server};

use crate::harness::{World, run};

#[test]
fn every_command_speaks_tls() {
    let world = World::over_tls(3);
    world.run(&["lock", "job", "-c", "echo done"]).expect(0);
    let status = world.run(&["status", "job"]).expect(0);
    assert!(status.stdout.contains("rediss://127.0.0.1:"), "{status:?}");
    world.run(&["acquire", "job", "--ttl", "20s", "--token-file", "token"]).expect(0);
    world.run(&["extend", "--token-file", "token"]).expect(0);
    world.run(&["lock", "--try", "job", "-c", "true"]).expect(75);
    world.run(&["release", "--token-file", "token"]).expect(0);
    let doctor = world.run(&["doctor"]).stdout;
    assert!(doctor.contains("  pass  reachable      The node answers"), "{doctor}");
    let bench = ["bench", "--duration", "200ms", "--warm-up", "50ms"];
    // On a busy machine it may warn of a node that is late.
    let is_silent = (0..5).any(|_| world.run(&bench).expect(0).stderr.is_empty());
    assert!(is_silent, "it has asked the nodes whether they are in use");
    world.nodes[0].cmd("SET of-somebody-else 1");
    world.run(&bench).expect(64).expect_says("--yes");
}

#[test]
fn what_is_wrong_with_tls_is_said() {
    let world = World::over_tls(1);
    let authority = world.nodes[0].authority();
    let stranger = Authority::named("somebody else");
    let ca = stranger.ca().display().to_string();
    world.run(&["lock", "--tls-ca", &ca, "job", "-c", "true"]).expect(69).expect_says(
        "the server's certificate is not accepted (its issuer is not trusted: name the file with its CA)",
    );
    let name = ["lock", "--tls-server-name", "redis.example", "job", "-c", "true"];
    world.run(&name).expect(69).expect_says("not for redis.example)");
    world.run(&["status", "--tls-ca", "gone.pem"]).expect(64).expect_says("gone.pem: No such file");
    let certificate = authority.client().certificate.display().to_string();
    world.run(&["status", "--tls-cert", &certificate]).expect(64).expect_says("needs its key");
    let mut plain = world.redbolt(&["status"]);
    plain.env("REDBOLT_NODES", world.nodes[0].address());
    run(plain).expect(64).expect_says("no node has a rediss:// or valkeys:// address");
    let mut danger = world.redbolt(&["status", "--danger-accept-any-certificate"]);
    danger.env_remove("REDBOLT_TLS_CA");
    run(danger).expect(0);
}

#[test]
fn a_client_certificate_comes_from_options_or_the_environment() {
    let authority = Arc::new(Authority::new());
    let server = Server::over_tls(&authority, authority.server(), &["--tls-auth-clients", "yes"]);
    let world = World::on(vec![server]);
    world.run(&["init"]).expect(69).expect_says("it wants a client certificate");
    let client = authority.client();
    let [certificate, key] =
        [&client.certificate, &client.key].map(|path| path.display().to_string());
    let hint = world.run(&["status", "--tls-cert", &certificate, "--tls-key", &key]);
    let hint = hint.stdout + &hint.stderr;
    assert!(
        hint.contains(&format!("redbolt init --tls-cert {certificate} --tls-key {key}")),
        "{hint}"
    );
    world.run(&["init", "--tls-cert", &certificate, "--tls-key", &key]).expect(0);
    let mut command = world.redbolt(&["lock", "job", "-c", "true"]);
    command.env("REDBOLT_TLS_CERT", &certificate).env("REDBOLT_TLS_KEY", &key);
    run(command).expect(0);
}

#[test]
fn a_password_comes_from_a_file_that_nobody_else_reads() {
    let authority = Arc::new(Authority::new());
    let server = Server::over_tls(&authority, authority.server(), &["--requirepass", "secret"]);
    let world = World::on(vec![server]);
    let file = world.path("password");
    fs::write(&file, "secret\n").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    world.run(&["init", "--password-file", "password"]).expect(64).expect_says("chmod 600");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    world.run(&["init"]).expect(69).expect_says("NOAUTH");
    world.run(&["init", "--password-file", "password"]).expect(0);
    let mut bench = world.redbolt(&["bench", "--duration", "200ms", "--warm-up", "50ms"]);
    bench.env("REDBOLT_PASSWORD_FILE", "password");
    assert_eq!(run(bench).expect(0).stderr, ""); // A user in the address has the password as well, and a pipe is read only once.
    let secret = [&b"AUTH"[..], b"secret"];
    let mut connection = world.nodes[0].connect();
    connection.run(&secret);
    connection.cmd("ACL SETUSER ann on >pw ~* &* +@all");
    let node = world.nodes[0].tls_address().replace("rediss://", "rediss://ann@");
    let pipe = world.path("pipe");
    nix::unistd::mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    let writer = thread::spawn(move || fs::write(pipe, "pw\n").unwrap());
    let words = ["lock", "--wait", "5s", "--node", &node];
    world.run(&[&words[..], &["--password-file", "pipe", "job", "-c", "true"]].concat()).expect(0);
    writer.join().unwrap();
    world
        .run(&[&words[..], &["job", "-c", "true"]].concat())
        .expect(64)
        .expect_says("a user without");
}
