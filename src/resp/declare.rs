//! Macros for repeated declarations: enums with a message for each variant, errors that wrap other
//! errors, and builders.

/// Declares an enum and its `Display` messages. A message can name the fields of its variant and
/// the values after `with`. A variant with `if` is compiled under that condition.
macro_rules! messages {
    (
        $(#[$about:meta])+
        $view:vis enum $name:ident $(<$life:lifetime>)? {$(
            $(#[$what:meta])*
            $variant:ident $({ $($(#[$which:meta])* $field:ident: $type:ty,)+ })?
                $(($inner:ident: $wrapped:ty))? $(if $when:meta)?: $words:literal $(with ($($value:expr),+))?,
        )+}
    ) => {
        $(#[$about])+
        $view enum $name $(<$life>)? {$(
            $(#[$what])*
            $(#[cfg($when)])?
            $variant $({ $($(#[$which])* $field: $type,)+ })? $(($wrapped))?,
        )+}

        impl $(<$life>)? std::fmt::Display for $name $(<$life>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {$(
                    $(#[cfg($when)])?
                    #[allow(unused_variables, reason = "a message may leave out fields")]
                    Self::$variant $({ $($field),+ })? $(($inner))? => write!(f, $words $(, $($value),+)?),
                )+}
            }
        }
    };
}

/// Implements `Error`, and `From` for the variants that `?` converts. A variant displays its inner
/// error completely, so its source is the source of that error, and a chain of sources repeats no
/// text.
macro_rules! sources {
    (
        $error:ident: $($(#[$when:meta])? $variant:ident),+
        $(; from $($(#[$if:meta])? $from:ident($source:ty)),+)?
    ) => {
        impl std::error::Error for $error {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                match self {
                    $($(#[$when])? Self::$variant(error) => error.source(),)+
                    _ => None,
                }
            }
        }

        $($(
            $(#[$if])?
            impl From<$source> for $error {
                fn from(error: $source) -> Self {
                    Self::$from(error)
                }
            }
        )+)?
    };
}

/// Declares methods of a builder that set one field each.
macro_rules! builder_methods {
    ($(
        $(#[$about:meta])+
        pub fn $name:ident($($argument:ident: $type:ty),*) => $($field:ident).+ = $value:expr;
    )+) => {$(
        $(#[$about])+
        pub fn $name(mut self $(, $argument: $type)*) -> Self {
            self.$($field).+ = $value;
            self
        }
    )+};
}

/// Implements `Debug` with the name of the type and the results of some of its methods.
macro_rules! debug_by_name {
    ($($name:ident $(<$life:lifetime>)? $({ $($method:ident),+ })?),+) => {$(
        impl std::fmt::Debug for $name $(<$life>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut shown = f.debug_struct(stringify!($name));
                $($(shown.field(stringify!($method), &self.$method());)+)?
                shown.finish_non_exhaustive()
            }
        }
    )+};
}

pub(crate) use {builder_methods, debug_by_name, messages, sources};
