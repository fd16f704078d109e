//! Charts of the last hour, a minute a step.

use std::fmt::Write;

/// Minutes that a chart shows.
pub(super) const MINUTES: usize = 60;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 170.0;
const LEFT: f64 = 52.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 22.0;

/// Where a value is, from the top.
fn y(value: f64, most: f64) -> f64 {
    TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - value / most)
}

fn x(minute: usize) -> f64 {
    LEFT + (WIDTH - LEFT) * minute as f64 / MINUTES as f64
}

/// The next round number: 1, 2 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|n| n * power)
        .find(|n| *n >= value * 0.999_999)
        .unwrap_or(10.0 * power)
}

/// The next round time, in seconds.
fn round_time_up(value: f64) -> f64 {
    const MINUTE: f64 = 60.0;
    const HOUR: f64 = 60.0 * MINUTE;
    const DAY: f64 = 24.0 * HOUR;
    const ROUND: [f64; 12] = [
        20.0,
        MINUTE,
        2.0 * MINUTE,
        5.0 * MINUTE,
        10.0 * MINUTE,
        20.0 * MINUTE,
        HOUR,
        2.0 * HOUR,
        6.0 * HOUR,
        12.0 * HOUR,
        DAY,
        2.0 * DAY,
    ];
    if value <= 10.0 {
        return round_up(value);
    }
    ROUND.into_iter().find(|n| *n >= value).unwrap_or_else(|| DAY * round_up(value / DAY))
}

/// A chart with lines at nothing, half and all of `most`, named by `name`.
fn frame(title: &str, most: f64, name: impl Fn(f64) -> String, inside: &str) -> String {
    let mut out =
        format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"100%\" role=\"img\" aria-label=\"{title}\">");
    for value in [0.0, most / 2.0, most] {
        let at = y(value, most);
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{WIDTH}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            name(value)
        );
    }
    for (minute, label, anchor) in
        [(0, "an hour ago", "start"), (MINUTES / 2, "30 minutes", "middle"), (MINUTES, "now", "end")]
    {
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{label}</text>",
            x(minute),
            HEIGHT - 6.0
        );
    }
    out.push_str(inside);
    out.push_str("</svg>");
    out
}

/// How tasks end, from the bottom up: names of classes.
pub(super) const ENDS: [&str; 3] = ["completed", "skipped", "aborted"];

/// Tasks that ended in each of these ways, stacked.
pub(super) fn ends(minutes: &[[f64; ENDS.len()]; MINUTES]) -> String {
    let most = round_up(minutes.iter().map(|ends| ends.iter().sum()).fold(0.0, f64::max));
    let wide = (WIDTH - LEFT) / MINUTES as f64 - 1.2;
    let mut bars = String::new();
    for (minute, ends) in minutes.iter().enumerate() {
        let mut from = 0.0;
        for (class, value) in ENDS.into_iter().zip(ends) {
            if *value > 0.0 {
                let (top, bottom) = (y(from + value, most), y(from, most));
                let high = (bottom - top).max(0.8);
                let _ = write!(
                    bars,
                    "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\"/>",
                    x(minute) + 0.6,
                    bottom - high,
                );
            }
            from += value;
        }
    }
    frame("tasks that ended, per minute", most, count, &bars)
}

/// A line goes on to the next minute with a value if that is no further off than this.
const JOINED: usize = 10;

/// The median and the 99th percentile of a time, in seconds.
pub(super) fn times(title: &str, minutes: &[Option<(f64, f64)>; MINUTES]) -> String {
    let most = round_time_up(minutes.iter().flatten().map(|(_, p99)| *p99).fold(0.001, f64::max));
    let line = |class: &str, of: fn(&(f64, f64)) -> f64| {
        let mut path = String::new();
        let mut before = None;
        for (minute, values) in minutes.iter().enumerate() {
            let Some(values) = values else { continue };
            let (at, value) = (x(minute) + (WIDTH - LEFT) / MINUTES as f64 / 2.0, y(of(values), most));
            // A line begins with a dash, so that a minute alone is seen as well.
            let _ = match before {
                Some(last) if minute - last <= JOINED => write!(path, "L{at:.1} {value:.1}"),
                _ => write!(path, "M{:.1} {value:.1}H{:.1}", at - 1.5, at + 1.5),
            };
            before = Some(minute);
        }
        format!("<path class=\"{class}\" d=\"{path}\"/>")
    };
    let lines = line("p99", |(_, p99)| *p99) + &line("p50", |(p50, _)| *p50);
    frame(title, most, seconds, &lines)
}

fn count(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e3 => format!("{}k", v / 1e3),
        v => format!("{v}"),
    }
}

fn seconds(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        v if v < 1.0 => {
            format!("{:.3}", v * 1e3).trim_end_matches('0').trim_end_matches('.').to_owned() + " ms"
        }
        v if v < 60.0 => format!("{v} s"),
        v if v < 3_600.0 => format!("{} min", v / 60.0),
        v if v < 86_400.0 => format!("{} h", v / 3_600.0),
        v => format!("{} d", v / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::{ENDS, MINUTES, count, ends, round_time_up, round_up, seconds, times};

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, round) in
            [(0.0, 1.0), (1.0, 1.0), (1.1, 2.0), (420.0, 500.0), (0.0031, 0.005), (7e5, 1e6)]
        {
            assert!((round_up(value) - round).abs() < 1e-9 * round, "{value}: {}", round_up(value));
        }
        assert_eq!([0.0, 0.5, 250.0, 2500.0, 5e6].map(count), ["0", "0.5", "250", "2.5k", "5M"]);
        let times = [0.0, 0.005, 0.0025, 2.5, 150.0, 10_800.0].map(seconds);
        assert_eq!(times, ["0", "5 ms", "2.5 ms", "2.5 s", "2.5 min", "3 h"]);
        let rounds = [0.3, 11.0, 61.0, 100_000.0, 300_000.0].map(round_time_up).map(seconds);
        assert_eq!(rounds, ["500 ms", "20 s", "2 min", "2 d", "5 d"]);
    }

    #[test]
    fn a_chart_has_what_there_is() {
        let mut minutes = [[0.0; ENDS.len()]; MINUTES];
        minutes[58] = [30.0, 0.0, 0.0];
        minutes[59] = [30.0, 5.0, 10.0];
        let chart = ends(&minutes);
        for (class, bars) in ENDS.into_iter().zip([2, 1, 1]) {
            assert_eq!(chart.matches(&format!("<rect class=\"{class}\"")).count(), bars, "{class}");
        }
        assert!(chart.contains(">50<"), "{chart}");
        let mut known = [None; MINUTES];
        known[3] = Some((1.0, 2.0));
        known[4] = Some((1.0, 3.0));
        known[9] = Some((1.0, 2.0));
        known[30] = Some((1.0, 2.0));
        let chart = times("waiting", &known);
        assert_eq!(chart.matches('L').count(), 4, "two lines that join three minutes each: {chart}");
        assert_eq!(chart.matches('M').count(), 2 * 2 + 3, "and a minute alone, beside the grid: {chart}");
        assert!(chart.contains(">5 s<"), "{chart}");
        assert!(!times("none", &[None; MINUTES]).contains("NaN"));
    }
}
