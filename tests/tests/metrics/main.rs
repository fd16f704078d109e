//! `metrics`: valid OpenMetrics text, with the numbers that the views have.

mod exposition;
mod monitoring;
mod numbers;
