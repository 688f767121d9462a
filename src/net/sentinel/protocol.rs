//! The commands to sentinels, and the parsing of their replies.

use crate::net::host_port::HostPort;
use crate::resp::{Frame, command};

/// Writes the query for the master, and the subscription to its changes.
pub(super) fn encode_query(out: &mut Vec<u8>, master: &str) {
    let ask = command(out, 3).arg(b"SENTINEL").arg(b"get-master-addr-by-name");
    let _ = ask.arg(master.as_bytes());
    let _ = command(out, 2).arg(b"SUBSCRIBE").arg(CHANNEL);
}

pub(super) const CHANNEL: &[u8] = b"+switch-master";

/// Returns the master in an answer; `None` if the sentinel does not know it.
pub(super) fn master_in(frame: &Frame) -> Option<HostPort> {
    let Frame::Array(parts) = frame else { return None };
    let [Frame::Bulk(host), Frame::Bulk(port)] = &parts[..] else { return None };
    host_port(std::str::from_utf8(host).ok()?, std::str::from_utf8(port).ok()?)
}

fn host_port(host: &str, port: &str) -> Option<HostPort> {
    let port = port.parse().ok().filter(|&port| port != 0 && !host.is_empty())?;
    Some((host.to_owned(), port))
}

/// Returns the new address of this master if a message announces one. Its text is
/// `name old-host old-port new-host new-port`.
pub(super) fn switched_to(frame: &Frame, master: &str) -> Option<HostPort> {
    let Frame::Array(parts) = frame else { return None };
    let [Frame::Bulk(kind), _, Frame::Bulk(text)] = &parts[..] else { return None };
    let words: Vec<&str> = std::str::from_utf8(text).ok()?.split(' ').collect();
    match words[..] {
        // Only a published message is a change, not the confirmation of a subscription.
        [name, _, _, host, port] if name == master && &kind[..] == b"message" => {
            host_port(host, port)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_place_is_none() {
        let bulk = |text: &'static str| Frame::Bulk(text.into());
        let array =
            |parts: &[&'static str]| Frame::Array(parts.iter().map(|it| bulk(it)).collect());
        assert_eq!(master_in(&array(&["10.0.0.1", "7000"])), Some(("10.0.0.1".to_owned(), 7_000)));
        for frame in [
            Frame::NilArray,
            Frame::Int(1),
            array(&["10.0.0.1"]),
            array(&["10.0.0.1", "0"]),
            array(&["10.0.0.1", "65536"]),
            array(&["", "1"]),
        ] {
            assert_eq!(master_in(&frame), None, "{frame:?}");
        }
    }

    #[test]
    fn only_news_of_the_master_count() {
        let bulk = |text: &'static str| Frame::Bulk(text.into());
        let told = |kind, text| {
            let frame = Frame::Array(vec![bulk(kind), bulk("+switch-master"), bulk(text)]);
            switched_to(&frame, "jobs")
        };
        let new = Some(("10.0.0.2".to_owned(), 7));
        assert_eq!(told("message", "jobs 10.0.0.1 6 10.0.0.2 7"), new);
        for (kind, text) in [
            ("message", "other 10.0.0.1 6 10.0.0.2 7"),
            ("message", "jobs 10.0.0.1 6 10.0.0.2 0"),
            ("message", "jobs 10.0.0.1 6 10.0.0.2"),
            ("subscribe", "jobs 10.0.0.1 6 10.0.0.2 7"),
        ] {
            assert_eq!(told(kind, text), None, "{kind} {text}");
        }
        let confirmation =
            Frame::Array(vec![bulk("subscribe"), bulk("+switch-master"), Frame::Int(1)]);
        assert_eq!(switched_to(&confirmation, "jobs"), None);
    }
}
