//! The result of one check: what was found, and what to do.

/// How a check ended, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Pass,
    /// It could not be checked, and locks do not depend on it.
    Skip,
    Warn,
    Fail,
}

impl Outcome {
    /// As it is printed, in text and in JSON.
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
    /// One sentence.
    pub(super) why: String,
    /// One sentence, for a warning or a failure.
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
