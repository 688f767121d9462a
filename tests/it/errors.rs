//! Errors as a program handles them: each has a type, and its source.

use std::error::Error;
use std::io;
use std::time::Duration;

use redbolt::{
    AcquireError, Client, Config, Driver, Engine, EngineError, ExtendError, LockRequest,
    RequestError, StartError, config::ConfigFault, engine::RunError,
};

use crate::support::{client, default, long, refusal, servers};

#[test]
fn a_configuration_error_has_a_type_and_not_only_a_text() {
    let config = default(["127.0.0.1:1"]).build().unwrap();
    let poll = mio::Poll::new().unwrap();
    let error = Driver::in_registry(config.clone(), poll.registry(), 0..2).unwrap_err();
    assert!(matches!(error, StartError::Tokens { given: 2, needed: 3 }), "{error:?}");
    assert_eq!(error.to_string(), "2 tokens given, 3 needed");
    assert!(error.source().is_none());

    // Callers that only have an `io::Error` get the same text.
    let words = error.to_string();
    let error = io::Error::from(error);
    assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::InvalidInput, words));
    assert!(error.get_ref().unwrap().is::<StartError>());

    let error = StartError::from(io::Error::from_raw_os_error(24));
    let StartError::Io(inner) = &error else { panic!("{error:?}") };
    assert_eq!(inner.raw_os_error(), Some(24));
    assert_eq!(io::Error::from(error).raw_os_error(), Some(24));
}

#[test]
fn a_configuration_reports_all_its_errors_at_once() {
    let builder = Config::builder().nodes(["127.0.0.1:1", "127.0.0.1:1"]).quorum(7);
    let error = builder.max_ttl(Duration::ZERO).in_flight(0).build().unwrap_err();
    let words = [
        "a quorum of 7 does not fit 2 nodes: it must be 2 to 2",
        "max_ttl of 0ns is out of range (1 ms to one day)",
        "max_ttl (less drift) of 0ns is out of range (1 ms to one day)",
        "nodes 1 and 2 have the same address 127.0.0.1:1",
        "in_flight is 0, it must be from 1 to 1048576",
    ];
    assert_eq!(error.to_string(), words.join("; "));
    assert!(error.source().is_none());

    // Wrong addresses suppress errors that only follow from them.
    let wrong = Config::builder().nodes(["h:0", "rediss://ann:pw@h:x"]);
    #[cfg(feature = "tls")]
    let wrong = wrong.tls_server_name("h");
    let error = wrong.clone().build().unwrap_err();
    let [ConfigFault::Address(_), ConfigFault::Address(_)] = error.faults() else {
        panic!("{error}")
    };
    assert_eq!(error.faults(), wrong.faults());
    assert!(!error.to_string().contains("pw"), "{error}");

    let error = Client::connect(["h:0"]).unwrap_err();
    assert!(matches!(error, StartError::Config(_)), "{error}");
    let error = Engine::connect([""; 0]).unwrap_err();
    assert_eq!(error.to_string(), "no nodes given");
}

/// A report of all causes repeats nothing, and names the lock.
#[test]
fn an_error_reports_each_cause_once() {
    let servers = servers(1);
    let (holder, other) = (client(&servers), client(&servers));
    let _held = holder.acquire(long(b"job")).unwrap();
    let report = refusal(other.acquire(LockRequest::new(b"job")));
    assert!(
        report.to_string().starts_with("lock job: held by another: 0 of 1 granted, 1 needed; ")
    );
    let refused = AcquireError::Refused(report.clone());
    let errors: [&dyn Error; 6] = [
        &refused,
        &AcquireError::from(RequestError::TtlZero),
        &AcquireError::from(EngineError::Forked),
        &ExtendError::Request(RequestError::NotHeld),
        &ExtendError::Refused(report.clone()),
        &RunError::<()>::Acquire(refused.clone()),
    ];
    assert!(errors.iter().all(|error| error.source().is_none()), "{errors:?}");
    assert_eq!(refused.to_string(), report.to_string());
    drop(Client::new(holder.config().clone()).unwrap());
}
