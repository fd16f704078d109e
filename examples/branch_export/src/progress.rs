//! One line that says how far things are: rewritten in place on a terminal, repeated now and then elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often the line is repeated where it cannot be rewritten.
const REPEAT: Duration = Duration::from_secs(2);

/// The progress line.
pub struct Progress {
    started: Instant,
    terminal: bool,
    printed: Option<Instant>,
    text: String,
}

impl Progress {
    /// Starts the clock.
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
            terminal: std::io::stdout().is_terminal(),
            printed: None,
            text: String::new(),
        }
    }

    /// Shows this as the state of things.
    pub fn update(&mut self, text: &str) {
        if self.terminal {
            print!("\r\x1b[2K{:6.1}s  {text}", self.started.elapsed().as_secs_f64());
            std::io::stdout().flush().ok();
        } else if self.text != text && self.printed.is_none_or(|printed| printed.elapsed() >= REPEAT) {
            println!("{:6.1}s  {text}", self.started.elapsed().as_secs_f64());
            self.text = text.to_owned();
        } else {
            return;
        }
        self.printed = Some(Instant::now());
    }

    /// Tells of an event, in a line that stays.
    pub fn say(&mut self, text: &str) {
        self.clear();
        println!("{:6.1}s  {text}", self.started.elapsed().as_secs_f64());
    }

    /// Makes room for other output.
    pub fn clear(&mut self) {
        if self.terminal && self.printed.take().is_some() {
            print!("\r\x1b[2K");
            std::io::stdout().flush().ok();
        }
    }
}

/// A bar of this many places.
pub fn bar(done: i64, total: i64, places: usize) -> String {
    let share = done.clamp(0, total.max(1)) as f64 / total.max(1) as f64;
    let filled = (share * places as f64) as usize;
    format!("[{}{}]", "#".repeat(filled), ".".repeat(places - filled))
}

#[cfg(test)]
mod tests {
    use super::bar;

    #[test]
    fn the_bar_fills_from_left_to_right() {
        assert_eq!([bar(0, 0, 3), bar(1, 2, 4), bar(9, 9, 3)], ["[...]", "[##..]", "[###]"]);
    }
}
