//! What operators look at: `health`, `top`, `page`, `metrics_rows`.

mod estimates;
mod health;
mod page;
mod starving;
mod top;
