//! Lets `cargo pgrx schema` read the SQL entities of the library; nothing of it is installed.
#![allow(missing_docs)]
::pgrx::pgrx_embed!();
