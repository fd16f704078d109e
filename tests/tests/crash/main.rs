//! A power cut: every process of the server is killed at once. What was committed is there when it comes back, what was
//! not is gone, and work goes on: tokens are valid, no worker is stuck, nothing is doubled.
//!
//! A queue that keeps part of its state in unlogged tables, shared memory or a background process fails here. The
//! cluster is one of its own, made by `.ci/cluster.sh`.

mod scenes;
