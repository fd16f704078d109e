//! Updates from one version of the extension to the next.
//!
//! `ALTER EXTENSION taskq UPDATE` leads to the schema that a fresh installation has, object by object; no task is lost
//! on the way, and no worker has to stop. No version is released yet, so the way is proved by a rehearsal: a next version
//! that has something of each kind more, or otherwise (`rehearsal.rs`).
//!
//! An update that forgets an index, the registration of a table for dumps or a comment fails here; so does a comparison
//! that would not see it (`objects.rs` has something of each kind changed and looks whether it is found), and a library that
//! goes on with a schema for which it is not made (`fit.rs`).

mod fit;
mod live;
mod objects;
mod rehearsal;
