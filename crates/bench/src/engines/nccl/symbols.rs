//! Functions of a library that is loaded at run time.
#![allow(
    unsafe_code,
    reason = "a library's functions are found by name, and their types are as its header says"
)]

/// Declares a struct of a library's functions, with a constructor that looks each of them up.
///
/// A name after `?` may be absent: it came with a later release.
macro_rules! functions {
    (
        $(#[$attribute:meta])* $name:ident {
            $($field:ident = $symbol:literal : fn($($argument:ty),*) -> $result:ty;)*
            $(? $later:ident = $later_symbol:literal : fn($($later_argument:ty),*) -> $later_result:ty;)*
        }
    ) => {
        $(#[$attribute])*
        pub(super) struct $name {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
            $(pub(super) $later: Option<unsafe extern "C" fn($($later_argument),*) -> $later_result>,)*
            // Never unloaded: NCCL and the driver have threads of their own and handlers for the process' end.
            _library: std::mem::ManuallyDrop<libloading::Library>,
        }

        impl $name {
            /// Finds all functions, or names the first that is missing.
            fn of(library: libloading::Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $($field: {
                        // SAFETY: the type is the one of the library's public header, which has not changed since the
                        // function appeared; the library is never unloaded.
                        *unsafe { library.get(concat!($symbol, "\0").as_bytes()) }.map_err(|_| $symbol)?
                    },)*
                    $($later: {
                        // SAFETY: as above.
                        unsafe { library.get(concat!($later_symbol, "\0").as_bytes()) }.ok().map(|it| *it)
                    },)*
                    _library: std::mem::ManuallyDrop::new(library),
                })
            }
        }
    };
}

pub(super) use functions;
