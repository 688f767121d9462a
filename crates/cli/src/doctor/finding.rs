//! The result of one check: what was found, and what to do.

/// The outcome of a check, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Pass,
    /// The check was not possible, and locks do not depend on it.
    Skip,
    Warn,
    Fail,
}

impl Outcome {
    /// Returns the outcome as printed, in text and in JSON.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Skip => "skip",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// A check and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The name of the check, one word.
    pub(super) check: &'static str,
    pub(super) outcome: Outcome,
    /// The finding, in one sentence.
    pub(super) why: String,
    /// The advice for a warning or a failure, in one sentence.
    pub(super) todo: Option<String>,
}

impl Finding {
    pub(super) fn pass(check: &'static str, why: impl Into<String>) -> Self {
        Self { check, outcome: Outcome::Pass, why: why.into(), todo: None }
    }

    pub(super) fn skip(check: &'static str, why: impl Into<String>) -> Self {
        Self { check, outcome: Outcome::Skip, why: why.into(), todo: None }
    }

    pub(super) fn warn(
        check: &'static str,
        why: impl Into<String>,
        todo: impl Into<String>,
    ) -> Self {
        Self { check, outcome: Outcome::Warn, why: why.into(), todo: Some(todo.into()) }
    }

    pub(super) fn fail(
        check: &'static str,
        why: impl Into<String>,
        todo: impl Into<String>,
    ) -> Self {
        Self { check, outcome: Outcome::Fail, why: why.into(), todo: Some(todo.into()) }
    }
}
