//! Errors as a program handles them: each has a type, and its source.

use std::error::Error;
use std::io;

use redbolt::{
    AcquireError, Client, Config, ConfigError, Driver, Engine, EngineError, EngineLimits,
    ExtendError, LockRequest, LossCause, RefusalReport, RequestError, StartError,
    engine::WithError,
};

use crate::support::{client, default, long, refusal, servers};

/// The source of this error, if it is of this type.
fn behind<E: Error + 'static>(error: &dyn Error) -> Option<&E> {
    error.source().and_then(<dyn Error>::downcast_ref)
}

#[test]
fn a_configuration_error_has_a_type_and_not_only_a_text() {
    let config = default(["127.0.0.1:1"]).build().unwrap();
    let poll = mio::Poll::new().unwrap();
    let error = Driver::in_registry(config.clone(), poll.registry(), 0..2).unwrap_err();
    assert!(matches!(error, StartError::Tokens { given: 2, needed: 3 }), "{error:?}");
    assert_eq!(error.to_string(), "2 tokens given, 3 needed");
    assert!(error.source().is_none());

    let mut limits = EngineLimits::default();
    limits.in_flight = 0;
    let error = Engine::start(config, limits).unwrap_err();
    assert!(matches!(error, StartError::InFlight { limit: 0 }), "{error:?}");
    // For callers that only have io::Error, with the same text.
    let words = error.to_string();
    let error = io::Error::from(error);
    assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::InvalidInput, words));
    assert!(error.get_ref().unwrap().is::<StartError>());

    let error = StartError::from(io::Error::from_raw_os_error(24));
    assert_eq!(behind::<io::Error>(&error).unwrap().raw_os_error(), Some(24));
    assert_eq!(io::Error::from(error).raw_os_error(), Some(24));

    let error = Config::builder().node("h:0").unwrap_err();
    let ConfigError::Address(inner) = &error else { panic!("{error:?}") };
    assert_eq!(behind(&error), Some(inner));
    let error = Config::builder().build().unwrap_err();
    let ConfigError::Settings(inner) = &error else { panic!("{error:?}") };
    assert_eq!(behind(&error), Some(inner));
}

#[test]
fn an_error_names_the_one_behind_it() {
    let servers = servers(1);
    let (holder, other) = (client(&servers), client(&servers));
    let _held = holder.acquire(long(b"job")).unwrap();
    let report = refusal(other.acquire(LockRequest::new(b"job")));
    let refused = AcquireError::Refused(report.clone());
    assert_eq!(behind::<RefusalReport>(&refused), Some(&report));
    assert_eq!(behind(&AcquireError::from(RequestError::TtlZero)), Some(&RequestError::TtlZero));
    assert_eq!(behind(&AcquireError::from(EngineError::Forked)), Some(&EngineError::Forked));
    assert_eq!(behind(&ExtendError::Request(RequestError::NotHeld)), Some(&RequestError::NotHeld));
    assert_eq!(behind(&ExtendError::Refused(report.clone())), Some(&report));
    assert!(ExtendError::Lost(LossCause::Gone).source().is_none());
    assert_eq!(behind(&WithError::Acquire(refused.clone())), Some(&refused));
    assert!(WithError::Lost(LossCause::Gone).source().is_none());
    drop(Client::new(holder.config()).unwrap());
}
