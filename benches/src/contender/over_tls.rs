//! The pair over TLS: a floor of rustls over epoll, and redbolt.
//!
//! The floor has what the other floors have, with each request and each reply in a record: bytes encoded
//! beforehand, replies counted and not parsed, the restart guard read behind each request. Both use the same
//! buffered connection of rustls with ring, and read what one read takes. Not here: the other contenders, see
//! `contender`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use redbolt::resp::command;
use redbolt::{Client, Config};
use redbolt_test_servers::Server;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::contract::{Contender, Node, PATIENCE, Task};
use super::redbolt_client::{Kind, RedboltClient};
use crate::wire::{Expected, GRANT, GUARD, TOKEN, load_undo, write_restart_guards};

/// A contender of which the nodes' addresses for TLS are a part.
pub type Start = fn(&Task, &Secured) -> Result<Box<dyn Contender>>;

/// Both. The first is the floor.
pub const ALL: [(&str, Start); 2] =
    [("raw rustls, epoll", start_raw), ("redbolt client, tls", start_client)];

/// Where the nodes speak TLS.
#[derive(Clone, Debug)]
pub struct Secured {
    /// Their ports on 127.0.0.1, in order.
    pub ports: Vec<u16>,
    /// Who has signed their certificates.
    pub ca: PathBuf,
}

impl Secured {
    /// Of servers that have been started with TLS.
    #[must_use]
    pub fn of(servers: &[Server]) -> Self {
        let ca = servers.first().map(|server| server.authority().ca()).unwrap_or_default();
        Self { ports: servers.iter().map(Server::tls_port).collect(), ca }
    }

    /// The same nodes without TLS, for what is not measured.
    #[must_use]
    pub fn task(servers: &[Server], resource: &str, ttl: std::time::Duration) -> Task {
        let nodes = servers.iter().map(|server| Node::Tcp(server.address())).collect();
        Task { nodes, resource: resource.to_owned(), ttl }
    }
}

fn start_client(task: &Task, secured: &Secured) -> Result<Box<dyn Contender>> {
    let builder =
        Config::builder().response_timeout(PATIENCE).dead_peer_timeout(2 * PATIENCE).new_nodes();
    let addresses = secured.ports.iter().map(|port| format!("rediss://127.0.0.1:{port}"));
    let config = builder.nodes(addresses).tls_ca(&secured.ca).build()?;
    let client: &'static Client = Box::leak(Box::new(Client::new(config)?));
    let report = client.warm_up(PATIENCE);
    ensure!(report.ready() == task.nodes.len(), "{report:?}");
    Ok(Box::new(RedboltClient::new(client, task, Kind::Exclusive)))
}

fn start_raw(task: &Task, secured: &Secured) -> Result<Box<dyn Contender>> {
    write_restart_guards(&task.nodes)?;
    let digest = load_undo(&task.nodes)?;
    let config = config(secured)?;
    let links = secured.ports.iter().map(|port| Link::open(&config, *port));
    let links = links.collect::<Result<Vec<_>>>()?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (at, link) in links.iter().enumerate() {
        let place = epoll::EventData::new_u64(at as u64);
        epoll::add(&epoll, &link.socket, place, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
    }
    let (resource, ttl) = (task.resource.as_bytes(), task.ttl.as_millis() as u64);
    let (mut set, mut undo) = (Vec::new(), Vec::new());
    drop(command(&mut set, 6).arg(b"SET").arg(resource).arg(TOKEN).arg(b"NX").arg(b"PX").int(ttl));
    drop(command(&mut set, 2).arg(b"PTTL").arg(GUARD));
    drop(command(&mut undo, 5).arg(b"EVALSHA").arg(&digest).int(1).arg(resource).arg(TOKEN));
    let events = Vec::with_capacity(links.len());
    Ok(Box::new(Floor { quorum: links.len() / 2 + 1, links, epoll, events, set, undo }))
}

fn config(secured: &Secured) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&secured.ca)?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

struct Floor {
    links: Vec<Link>,
    quorum: usize,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    set: Vec<u8>,
    undo: Vec<u8>,
}

impl Contender for Floor {
    #[inline]
    fn acquire(&mut self) -> Result<()> {
        self.links.iter_mut().try_for_each(|link| link.say(&self.set, GRANT))?;
        self.majority(GRANT)
    }

    #[inline]
    fn release(&mut self) -> Result<()> {
        let confirmed = Expected { begins: b":1\r\n", len: 4 };
        self.links.iter_mut().try_for_each(|link| link.say(&self.undo, confirmed))?;
        self.majority(confirmed)
    }
}

impl Floor {
    #[inline]
    fn majority(&mut self, reply: Expected) -> Result<()> {
        let mut answered = 0;
        while answered < self.quorum {
            self.events.clear();
            epoll::wait(&self.epoll, spare_capacity(&mut self.events), None)?;
            for event in &self.events {
                let at = event.data.u64() as usize;
                answered += usize::from(self.links[at].receive(reply)?);
            }
        }
        Ok(())
    }
}

struct Link {
    socket: TcpStream,
    tls: ClientConnection,
    /// Bytes of replies that have not arrived.
    due: usize,
    space: Vec<u8>,
}

impl Link {
    /// Connects, and shakes hands while the socket still blocks.
    fn open(config: &Arc<ClientConfig>, port: u16) -> Result<Self> {
        let mut socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from("127.0.0.1")?;
        let mut tls = ClientConnection::new(Arc::clone(config), name)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        // The tickets behind the handshake come before the reply.
        tls.writer().write_all(b"PING\r\n")?;
        let mut pong = [0; 7];
        rustls::Stream::new(&mut tls, &mut socket).read_exact(&mut pong)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, tls, due: 0, space: vec![0; 4096] })
    }

    #[inline]
    fn say(&mut self, request: &[u8], reply: Expected) -> Result<()> {
        self.tls.writer().write_all(request)?;
        self.tls.write_tls(&mut self.socket)?;
        ensure!(!self.tls.wants_write(), "the socket took a part of a request");
        self.due += reply.len;
        Ok(())
    }

    /// Reads what has arrived. Whether the last due reply is complete. A read of less than rustls has
    /// room for was the last one.
    #[inline]
    fn receive(&mut self, reply: Expected) -> Result<bool> {
        loop {
            let taken = match self.tls.read_tls(&mut self.socket) {
                Ok(0) => bail!("the node closed the connection"),
                Ok(taken) => taken,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            let state = self.tls.process_new_packets()?;
            let length = state.plaintext_bytes_to_read();
            self.tls.reader().read_exact(&mut self.space[..length])?;
            self.due = self.due.checked_sub(length).context("the node said more than was due")?;
            if self.due == 0 && length > 0 {
                let last = &self.space[length.saturating_sub(reply.len)..length];
                ensure!(last.starts_with(reply.begins), "not granted, or not held");
                return Ok(true);
            }
            if taken < ROOM {
                return Ok(false);
            }
        }
    }
}

/// What rustls reads at a time.
const ROOM: usize = 4096;
