//! What operators look at: `health`, `top`, `page`, `metrics_rows`.

mod health;
mod page;
mod top;
