//! Enums that have the message of each variant beside it, and errors that wrap other errors.

/// Declares an enum with its messages, which `Display` writes. A message names the fields of its variant.
macro_rules! messages {
    (
        $(#[$about:meta])+
        $view:vis enum $name:ident {$(
            $(#[$what:meta])*
            $variant:ident $({ $($(#[$which:meta])* $field:ident: $type:ty,)+ })?
                $(($inner:ident: $wrapped:ty))?: $words:literal $(with $value:expr)?,
        )+}
    ) => {
        $(#[$about])+
        $view enum $name {$(
            $(#[$what])*
            $variant $({ $($(#[$which])* $field: $type,)+ })? $(($wrapped))?,
        )+}

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {$(
                    Self::$variant $({ $($field),+ })? $(($inner))? => write!(f, $words $(, $value)?),
                )+}
            }
        }
    };
}

/// Implements `Error` with the variants that have a source, and `From` for those that `?` converts.
macro_rules! sources {
    (
        $error:ident: $($(#[$when:meta])? $variant:ident),+
        $(; from $($(#[$if:meta])? $from:ident($source:ty)),+)?
    ) => {
        impl std::error::Error for $error {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                match self {
                    $($(#[$when])? Self::$variant(error) => Some(error),)+
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

pub(crate) use {messages, sources};
