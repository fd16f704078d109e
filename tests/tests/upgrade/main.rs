//! Updates from one version of the extension to the next.
//!
//! The install script of each released version is kept (`sql/releases`), and a database where it was installed has that
//! schema. From each of them `ALTER EXTENSION taskq UPDATE` leads to the schema that a fresh installation has, object
//! by object; no task is lost on the way, and no worker has to stop. As long as there is one version only, the way is
//! proved by a rehearsal: a next version that has something of each kind more, or otherwise (`rehearsal.rs`).
//!
//! An update that forgets an index, the registration of a table for dumps or a comment fails here; so does a comparison
//! that would not see it (`objects.rs` has something of each kind changed and looks whether it is found), and a library that
//! goes on with a schema for which it is not made (`fit.rs`).

mod fit;
mod live;
mod objects;
mod rehearsal;
mod releases;
