//! The TLS session between a socket's bytes and the core's: handshake, records and close.
//!
//! The socket is an argument, so that tests control its bytes. Trusted certificates are in `trust`.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::sync::Arc;

use rustls::client::ClientConnection;
use rustls::pki_types::ServerName;

use super::fault::TlsFault;

pub(crate) struct Session {
    connection: ClientConnection,
    /// The last read emptied the kernel's buffer.
    drained: bool,
    /// The first byte received from the server.
    first: Option<u8>,
    has_begun: bool,
}

impl Session {
    pub(super) fn new(
        config: Arc<rustls::ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, rustls::Error> {
        let connection = ClientConnection::new(config, name)?;
        Ok(Self { connection, drained: false, first: None, has_begun: false })
    }

    /// Continues the handshake as far as the socket allows. Returns whether it is complete.
    pub(crate) fn shake_hands(&mut self, socket: &mut (impl Read + Write)) -> io::Result<bool> {
        while self.connection.is_handshaking() {
            self.has_begun = true;
            let step = match self.connection.wants_write() {
                true => self.flush(socket).map_err(|error| self.closing_error(socket, error)),
                false => self.receive(socket).map(drop),
            };
            match step {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                step => step?,
            }
        }
        Ok(true)
    }

    /// Returns whether the connection was established, so that the handshake began.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Returns the step that an unfinished connection is waiting for.
    pub(crate) fn unfinished(&self) -> &'static str {
        match (self.has_begun, self.first) {
            (false, _) => NOBODY,
            (true, None) => NO_ANSWER,
            (true, Some(_)) => HALF_A_HANDSHAKE,
        }
    }

    /// Returns the best error after a failed write. A server that refuses a client sends an alert,
    /// and then resets the connection because the client keeps sending.
    fn closing_error(&mut self, socket: &mut (impl Read + Write), error: io::Error) -> io::Error {
        if error.kind() == ErrorKind::WouldBlock {
            return error;
        }
        // The server's last data may complete the handshake. The end of the connection is then not
        // a fault of TLS: it ends the loop, and the original error is returned.
        for _ in 0..LAST_READS {
            match self.receive(socket) {
                Ok(1..) => {}
                Err(last) if last.get_ref().is_some_and(|inner| inner.is::<TlsFault>()) => {
                    return last;
                }
                Ok(0) | Err(_) => break,
            }
        }
        error
    }

    /// Reads like a plain socket. Zero means that the server announced the end of the connection.
    pub(crate) fn read(
        &mut self,
        socket: &mut (impl Read + Write),
        space: &mut [u8],
    ) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(space) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.receive(socket)?;
                }
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    // An end that was not announced may be an attack that truncates the data.
                    return Err(TlsFault::truncated().into());
                }
                outcome => return outcome,
            }
        }
    }

    /// Returns whether a read that did not fill its buffer was the last one, as on a plain socket.
    pub(crate) fn is_drained(&self) -> bool {
        self.drained
    }

    /// Writes like a plain socket. Accepted bytes may be [unsent](Self::has_unsent) until the next
    /// write.
    pub(crate) fn write(&mut self, socket: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
        let mut taken = 0;
        loop {
            match self.flush(socket) {
                Err(error) if error.kind() == ErrorKind::WouldBlock && taken > 0 => break,
                flushed => flushed?,
            }
            if taken == bytes.len() {
                break;
            }
            taken += self.connection.writer().write(&bytes[taken..])?;
        }
        Ok(taken)
    }

    /// Returns whether written bytes or TLS messages still wait for the kernel.
    pub(crate) fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends the closing alert, as far as the kernel accepts it at once.
    pub(crate) fn close(&mut self, socket: &mut impl Write) {
        self.connection.send_close_notify();
        // The connection closes even if the peer does not receive the alert.
        let _ = self.flush(socket);
    }

    fn flush(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Sink(socket)) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads once and decrypts complete records. Returns the number of bytes, zero at the end.
    fn receive(&mut self, socket: &mut (impl Read + Write)) -> io::Result<usize> {
        let mut source = RecordReader { socket, first: &mut self.first, is_short: false };
        let length = self.connection.read_tls(&mut source)?;
        self.drained = source.is_short;
        if length == 0 && self.connection.is_handshaking() {
            return Err(TlsFault::cut().into());
        }
        let processed = self.connection.process_new_packets().map(|_| length);
        processed.map_err(|error| {
            // Sends the alert, so that the server can log the reason.
            let _ = self.flush(socket);
            let is_plain = self.connection.is_handshaking() && !self.first.is_some_and(is_record);
            if is_plain { TlsFault::plain().into() } else { TlsFault::of(&error).into() }
        })
    }
}

/// A reader that records the first byte and short reads of a socket.
struct RecordReader<'a, S> {
    socket: &'a mut S,
    first: &'a mut Option<u8>,
    /// The last read did not fill its buffer.
    is_short: bool,
}

impl<S: Read> Read for RecordReader<'_, S> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let length = self.socket.read(space)?;
        self.is_short = length < space.len();
        if let Some(&byte) = space[..length].first() {
            self.first.get_or_insert(byte);
        }
        Ok(length)
    }
}

/// A writer that merges several buffers. The standard library suppresses SIGPIPE only for writes of
/// one buffer, and the signal would end a program whose `main` is not in Rust.
struct Sink<'a, S>(&'a mut S);

impl<S: Write> Write for Sink<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match parts {
            [part] => self.0.write(part),
            // A flight of the handshake is sent as one packet.
            _ => self
                .0
                .write(&parts.iter().flat_map(|part| part.iter().copied()).collect::<Vec<_>>()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Returns whether a TLS record begins with this byte: a change of cipher, an alert, a handshake or
/// data.
fn is_record(byte: u8) -> bool {
    matches!(byte, 0x14..=0x17)
}

/// The maximum number of reads, for a flight and an alert in pieces of any plausible size.
const LAST_READS: usize = 1 << 10;

const NOBODY: &str = "nobody answers there";
const NO_ANSWER: &str = "connected, but TLS is not answered; a port without TLS does that";
const HALF_A_HANDSHAKE: &str = "connected, but the TLS handshake did not end";

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use redbolt_test_servers::{Authority, Identity};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{HandshakeKind, ServerConfig, ServerConnection};

    use super::*;
    use crate::net::tls::{Connector, SentinelTls, TlsSettings};
    use crate::net::{Address, cause};
    use crate::proto::Cause;

    /// A simulated network between a session and a server in this process.
    struct Network {
        server: ServerConnection,
        heard: Vec<u8>,
        /// The bytes in flight to the client, and how many more of them will arrive.
        to_client: Vec<u8>,
        left_to_client: usize,
        left_to_server: usize,
        /// The maximum number of bytes per read or write.
        step: usize,
        /// The client's send buffer is full.
        is_full: bool,
        has_ended: bool,
    }

    impl Network {
        fn new(config: &Arc<ServerConfig>) -> Self {
            let server = ServerConnection::new(Arc::clone(config)).unwrap();
            let (left_to_client, left_to_server, step) = (usize::MAX, usize::MAX, usize::MAX);
            let (is_full, has_ended) = (false, false);
            Self {
                server,
                heard: Vec::new(),
                to_client: Vec::new(),
                left_to_client,
                left_to_server,
                step,
                is_full,
                has_ended,
            }
        }

        /// Puts the server's pending output in flight.
        fn pass(&mut self) {
            while self.server.wants_write() {
                self.server.write_tls(&mut self.to_client).unwrap();
            }
        }

        fn say(&mut self, text: &[u8]) {
            self.server.writer().write_all(text).unwrap();
            self.pass();
        }

        /// Takes the bytes that the server received since the last call.
        fn heard(&mut self) -> Vec<u8> {
            std::mem::take(&mut self.heard)
        }
    }

    impl Read for Network {
        fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
            let length = space.len().min(self.step).min(self.left_to_client);
            let length = length.min(self.to_client.len());
            if length == 0 && (self.has_ended || self.left_to_client == 0) {
                return Ok(0);
            }
            if length == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            space[..length].copy_from_slice(&self.to_client[..length]);
            self.to_client.drain(..length);
            self.left_to_client = self.left_to_client.saturating_sub(length);
            Ok(length)
        }
    }

    impl Write for Network {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.is_full {
                return Err(ErrorKind::WouldBlock.into());
            }
            if self.left_to_server == 0 {
                return Err(ErrorKind::BrokenPipe.into());
            }
            let length = bytes.len().min(self.step).min(self.left_to_server);
            let mut rest = &bytes[..length];
            while !rest.is_empty() {
                self.server.read_tls(&mut rest).unwrap();
                // Only the client is under test.
                let _ = self.server.process_new_packets();
                // The read blocks once all data has been read.
                let _ = self.server.reader().read_to_end(&mut self.heard);
            }
            self.left_to_server -= length;
            self.pass();
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn serving(identity: &Identity) -> Arc<ServerConfig> {
        let chain = CertificateDer::pem_file_iter(&identity.certificate).unwrap();
        let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_file(&identity.key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        Arc::new(builder.with_no_client_auth().with_single_cert(chain, key).unwrap())
    }

    fn address() -> Address {
        "rediss://localhost".parse().unwrap()
    }

    fn connector(authority: &Authority) -> Connector {
        let settings = TlsSettings { ca: Some(authority.ca()), ..TlsSettings::default() };
        connecting(settings, &[address()])
    }

    fn connecting(settings: TlsSettings, addresses: &[Address]) -> Connector {
        Connector::for_all(settings, SentinelTls::default(), addresses).unwrap().0.unwrap()
    }

    /// Completes the handshake on both sides.
    fn open(connector: &mut Connector, network: &mut Network) -> Session {
        open_at(&address(), connector, network)
    }

    fn open_at(address: &Address, connector: &mut Connector, network: &mut Network) -> Session {
        let mut session = connector.session(address).unwrap();
        while !session.shake_hands(network).unwrap() {}
        session.write(network, &[]).unwrap();
        session
    }

    fn read(session: &mut Session, network: &mut Network) -> io::Result<Vec<u8>> {
        let (mut all, mut space) = (Vec::new(), [0; 64]);
        loop {
            match session.read(network, &mut space) {
                Ok(0) => return Ok(all),
                Ok(length) => all.extend_from_slice(&space[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(all),
                Err(error) => return Err(error),
            }
        }
    }

    #[test]
    fn bytes_pass_in_pieces_of_any_size() {
        let authority = Authority::new();
        let config = serving(&authority.server());
        // Each piece costs as much as its whole record, so small steps get little data.
        for (step, length) in
            [(1, 2_000), (3, 4_000), (64, 40_000), (4_095, 40_000), (usize::MAX, 40_000)]
        {
            let mut network = Network::new(&config);
            network.step = step;
            let mut session = open(&mut connector(&authority), &mut network);
            let long = vec![b'x'; length];
            let (first, rest) = long.split_at(1_000);
            assert_eq!(session.write(&mut network, first).unwrap(), first.len());
            assert_eq!(session.write(&mut network, rest).unwrap(), rest.len());
            assert_eq!(network.heard(), long, "{step}");
            network.say(b"+OK\r\n");
            network.say(&long);
            assert_eq!(read(&mut session, &mut network).unwrap().len(), 5 + long.len(), "{step}");
            assert!(session.is_drained() && !session.has_unsent());
        }
    }

    #[test]
    fn a_handshake_that_is_cut_at_any_byte_ends() {
        let authority = Authority::new();
        let config = serving(&authority.server());
        for cut in 0.. {
            // A new connector does not have a session to resume.
            let mut network = Network::new(&config);
            network.left_to_client = cut;
            let mut session = connector(&authority).session(&address()).unwrap();
            match (0..99).find_map(|_| session.shake_hands(&mut network).map(drop).err()) {
                Some(error) => {
                    assert_eq!(cause::of(&error).0, Cause::ConnectionClosed, "{cut}: {error}")
                }
                None => return assert!(cut > 500 && !session.connection.is_handshaking(), "{cut}"),
            }
        }
    }

    #[test]
    fn a_handshake_that_is_cut_on_the_way_to_the_server_ends() {
        let authority = Authority::new();
        let config = serving(&authority.server());
        for cut in 0.. {
            let mut network = Network::new(&config);
            network.left_to_server = cut;
            let mut session = connector(&authority).session(&address()).unwrap();
            let shaken = (0..99).find_map(|_| session.shake_hands(&mut network).map(drop).err());
            match shaken.or_else(|| session.write(&mut network, b"x").err()) {
                Some(error) => {
                    assert_eq!(cause::of(&error).0, Cause::ConnectionReset, "{cut}: {error}")
                }
                None => return assert!(cut > 250 && network.heard() == b"x", "{cut}"),
            }
        }
    }

    /// The client completes the handshake if it reads the whole flight.
    #[test]
    fn a_server_that_leaves_behind_its_first_flight_ends_the_handshake() {
        let authority = Authority::new();
        let config = serving(&authority.server());
        for is_announced in [false, true] {
            let mut network = Network::new(&config);
            let mut session = connector(&authority).session(&address()).unwrap();
            session.flush(&mut network).unwrap();
            if is_announced {
                network.server.send_close_notify();
                network.pass();
            }
            (network.step, network.left_to_server, network.has_ended) = (100, 0, true);
            let (sender, ended) = std::sync::mpsc::channel();
            std::thread::spawn(move || sender.send(session.shake_hands(&mut network)));
            let shaken = ended.recv_timeout(std::time::Duration::from_secs(10));
            let error = shaken.expect("it does not go on for ever").unwrap_err();
            assert_eq!(cause::of(&error).0, Cause::ConnectionReset, "{error}");
        }
    }

    #[test]
    fn what_a_full_network_does_not_take_is_sent_later() {
        let authority = Authority::new();
        let mut network = Network::new(&serving(&authority.server()));
        let mut session = open(&mut connector(&authority), &mut network);
        network.is_full = true;
        assert_eq!(session.write(&mut network, b"first").unwrap(), 5);
        assert!(session.has_unsent());
        let refused = session.write(&mut network, b"second").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        network.is_full = false;
        assert_eq!(session.write(&mut network, b"second").unwrap(), 6);
        assert!(!session.has_unsent());
        assert_eq!(network.heard(), b"firstsecond");
    }

    #[test]
    fn an_end_that_is_announced_is_one_and_another_is_a_cut() {
        let authority = Authority::new();
        let config = serving(&authority.server());
        for is_announced in [true, false] {
            let mut network = Network::new(&config);
            let mut session = open(&mut connector(&authority), &mut network);
            read(&mut session, &mut network).unwrap();
            network.say(b"last words");
            if is_announced {
                network.server.send_close_notify();
                network.pass();
            }
            network.has_ended = true;
            let mut space = [0; 64];
            let length = session.read(&mut network, &mut space).unwrap();
            assert_eq!(&space[..length], b"last words");
            let end = session.read(&mut network, &mut space);
            match end {
                Ok(length) => assert!(is_announced && length == 0),
                Err(error) => {
                    assert!(!is_announced);
                    assert_eq!(cause::of(&error).0, Cause::ConnectionClosed);
                }
            }
        }
    }

    /// A read that stopped early would wait for readiness that was already reported.
    #[test]
    fn a_read_is_the_last_one_only_when_nothing_is_left() {
        let authority = Authority::new();
        let mut network = Network::new(&serving(&authority.server()));
        let mut session = open(&mut connector(&authority), &mut network);
        read(&mut session, &mut network).unwrap();
        for _ in 0..300 {
            network.say(b"0123456789");
        }
        let (mut heard, mut space) = (0, [0; 8_192]);
        loop {
            heard += session.read(&mut network, &mut space).unwrap();
            if session.is_drained() {
                break;
            }
        }
        assert_eq!(heard, 3_000);
    }

    #[test]
    fn keys_are_changed_when_the_server_says_so() {
        let authority = Authority::new();
        let mut network = Network::new(&serving(&authority.server()));
        let mut session = open(&mut connector(&authority), &mut network);
        session.write(&mut network, b"before").unwrap();
        network.server.refresh_traffic_keys().unwrap();
        network.say(b"under new keys");
        assert_eq!(read(&mut session, &mut network).unwrap(), b"under new keys");
        session.write(&mut network, b", after").unwrap();
        assert_eq!(network.heard(), b"before, after");
    }

    #[test]
    fn a_byte_that_was_changed_is_noticed() {
        let authority = Authority::new();
        let mut network = Network::new(&serving(&authority.server()));
        let mut session = open(&mut connector(&authority), &mut network);
        read(&mut session, &mut network).unwrap();
        network.say(b"+OK\r\n");
        *network.to_client.last_mut().unwrap() ^= 1;
        let error = read(&mut session, &mut network).unwrap_err();
        assert_eq!(cause::of(&error).0, Cause::Tls);
    }

    #[test]
    fn a_server_without_tls_is_one() {
        let authority = Authority::new();
        let connector = connector(&authority);
        for words in ["-ERR unknown command\r\n", "HTTP/1.1 400 Bad Request\r\n", "\r", "\0"] {
            let mut network = Network::new(&serving(&authority.server()));
            let mut session = connector.session(&address()).unwrap();
            network.is_full = true;
            assert!(!session.shake_hands(&mut network).unwrap());
            network.is_full = false;
            session.flush(&mut io::sink()).unwrap();
            network.to_client = words.repeat(8).into_bytes();
            let error = session.shake_hands(&mut network).unwrap_err();
            assert_eq!(cause::of(&error).0, Cause::PlainPort, "{words}: {error}");
        }
    }

    #[test]
    fn sessions_are_resumed_as_long_as_the_certificates_are_the_same() {
        let authority = Authority::new();
        let config = serving(&authority.server());
        let mut connector = connector(&authority);
        let mut kind = || {
            let mut network = Network::new(&config);
            let mut session = open(&mut connector, &mut network);
            session.write(&mut network, b"x").unwrap();
            // Tickets arrive after the handshake.
            read(&mut session, &mut network).unwrap();
            session.connection.handshake_kind().unwrap()
        };
        assert_eq!(kind(), HandshakeKind::Full);
        assert_eq!(kind(), HandshakeKind::Resumed);
        let more = Authority::new();
        let both = [authority.ca(), more.ca()].map(|file| std::fs::read(file).unwrap()).concat();
        std::fs::write(authority.ca(), both).unwrap();
        assert_eq!(kind(), HandshakeKind::Full, "what another CA has vouched for");
        assert_eq!(kind(), HandshakeKind::Resumed);
    }
    /// A node can neither read another node's tickets nor resume its sessions.
    #[test]
    fn each_node_of_one_name_resumes_its_own_sessions() {
        let authority = Authority::new();
        let identity = authority.server();
        let nodes = ["rediss://10.0.0.1", "rediss://10.0.0.2", "rediss://10.0.0.2:7000"]
            .map(|address| (address.parse::<Address>().unwrap(), serving(&identity)));
        let settings = TlsSettings {
            ca: Some(authority.ca()),
            server_name: Some("localhost".to_owned()),
            ..TlsSettings::default()
        };
        let addresses = nodes.each_ref().map(|(address, _)| address.clone());
        let mut connector = connecting(settings, &addresses);
        for expected in [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed] {
            for (address, config) in &nodes {
                let mut network = Network::new(config);
                let mut session = open_at(address, &mut connector, &mut network);
                session.write(&mut network, b"x").unwrap();
                read(&mut session, &mut network).unwrap();
                assert_eq!(session.connection.handshake_kind(), Some(expected), "{address}");
            }
        }
    }
}
