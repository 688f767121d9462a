//! Errors as a program handles them: each has a type, and its source.

use std::error::Error;
use std::io;

use redbolt::{
    AcquireError, Client, Config, ConfigError, Driver, EngineError, ExtendError, LockRequest,
    RequestError, StartError, engine::RunError,
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

    // For callers that only have io::Error, with the same text.
    let words = error.to_string();
    let error = io::Error::from(error);
    assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::InvalidInput, words));
    assert!(error.get_ref().unwrap().is::<StartError>());

    let error = StartError::from(io::Error::from_raw_os_error(24));
    let StartError::Io(inner) = &error else { panic!("{error:?}") };
    assert_eq!(inner.raw_os_error(), Some(24));
    assert_eq!(io::Error::from(error).raw_os_error(), Some(24));

    let error = Config::builder().node("h:0").unwrap_err();
    let ConfigError::Address(inner) = &error else { panic!("{error:?}") };
    assert_eq!(error.to_string(), inner.to_string());
    assert!(error.source().is_none());
    let error = Config::builder().build().unwrap_err();
    let ConfigError::Settings(inner) = &error else { panic!("{error:?}") };
    assert_eq!(error.to_string(), inner.to_string());
    assert!(error.source().is_none());
}

/// A report of all causes says nothing twice, and names the lock.
#[test]
fn an_error_says_all_it_knows_once() {
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
    drop(Client::new(holder.config()).unwrap());
}
