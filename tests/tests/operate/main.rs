//! What operators look at: `health`, `top`, `page`, `metrics_rows`.

mod asked_for;
mod estimates;
mod find;
mod health;
mod missed;
mod page;
mod starving;
mod stopped;
mod top;
mod worked;
