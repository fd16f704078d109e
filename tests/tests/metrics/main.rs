//! `metrics`: valid OpenMetrics text, with the numbers that the views have.

mod exposition;
mod numbers;
