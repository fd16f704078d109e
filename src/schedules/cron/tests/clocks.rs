//! Times around a change of the clocks.

use super::*;

#[test]
fn a_nightly_job_in_the_gap_of_spring_runs_once_right_after_it() {
    // Berlin: 02:00 to 03:00 does not exist on 2026-03-29.
    assert_eq!(
        next("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2),
        ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
    );
}

#[test]
fn a_nightly_job_in_the_repeated_hour_of_autumn_runs_once() {
    // Berlin: 02:00 to 03:00 comes twice on 2026-10-25.
    assert_eq!(
        next("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2),
        ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
    );
}

/// What the clock of a zone shows when `expression` runs, for so many days.
fn shown(expression: &str, zone: &str, from: &str, days: i64) -> Vec<String> {
    let calendar = Calendar::parse(expression, zone).unwrap_or_else(|(_, e)| panic!("{e:?}"));
    let mut time = at(from);
    let end = time + Duration::from_secs(days as u64 * 86_400);
    std::iter::from_fn(|| {
        time = calendar.after(time)?;
        (time < end).then_some(time)
    })
    .map(|time| {
        let utc = DateTime::<Utc>::from_timestamp_micros(time.0 + POSTGRES_EPOCH).expect("a time");
        utc.with_timezone(&calendar.zone).format("%d %H:%M%z").to_string()
    })
    .collect()
}

#[test]
fn what_runs_before_a_gap_does_not_run_behind_it_once_more() {
    for (expression, zone, from, expected) in [
        ("15 1 * * *", "Europe/Berlin", "2030-03-30T12:00:00Z", ["31 01:15+0100", "01 01:15+0200"]),
        ("30 1 * * *", "America/New_York", "2030-03-09T12:00:00Z", ["10 01:30-0500", "11 01:30-0400"]),
        ("30 2 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", ["04 02:30-0200", "05 02:30-0200"]),
        ("30 3 * * *", "America/Santiago", "2030-09-07T12:00:00Z", ["08 03:30-0300", "09 03:30-0300"]),
        ("15 3 * * *", "Africa/Cairo", "2030-04-25T12:00:00Z", ["26 03:15+0300", "27 03:15+0300"]),
    ] {
        assert_eq!(shown(expression, zone, from, 2), expected, "{zone}");
    }
}

#[test]
fn all_that_a_gap_leaves_out_comes_as_one_run_right_after_it() {
    let spring = |expression| shown(expression, "Europe/Berlin", "2030-03-30T23:30:00Z", 1);
    for expression in ["*/15 2 * * *", "0,30 2 * * *", "* 2 * * *", "59 2 * * *", "0 2,3 * * *"] {
        assert_eq!(spring(expression), ["31 03:00+0200"], "{expression}");
    }
    assert_eq!(spring("45 1,2 * * *"), ["31 01:45+0100", "31 03:00+0200"]);
    // A whole day was left out.
    assert_eq!(
        shown("30 5 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", 3),
        ["29 05:30-1000", "31 00:00+1400", "31 05:30+1400", "01 05:30+1400"]
    );
}

#[test]
fn what_has_any_hour_goes_by_real_time() {
    let autumn = |expression| shown(expression, "Europe/Berlin", "2030-10-26T23:50:00Z", 1);
    assert_eq!(autumn("30 * * * *")[..3], ["27 02:30+0200", "27 02:30+0100", "27 03:30+0100"]);
    assert_eq!(autumn("5 */2 * * *")[..3], ["27 02:05+0200", "27 02:05+0100", "27 04:05+0100"]);
    assert_eq!(autumn("@hourly").len(), 24);
    assert_eq!(autumn("* * * * *").len(), 24 * 60 - 1);
    assert_eq!(autumn("30 0-23 * * *").len(), 23, "fixed hours");
}

/// Zones, and days before they change their clocks: by an hour, by half of one, at midnight, by a day; back or forward.
const CHANGES: [(&str, &str); 8] = [
    ("Europe/Berlin", "2030-03-29T00:00:00Z"),
    ("Europe/Berlin", "2030-10-25T00:00:00Z"),
    ("Australia/Lord_Howe", "2030-04-05T00:00:00Z"),
    ("Australia/Lord_Howe", "2030-10-04T00:00:00Z"),
    ("America/Sao_Paulo", "2018-11-02T00:00:00Z"),
    ("America/Sao_Paulo", "2018-02-16T00:00:00Z"),
    ("Pacific/Apia", "2011-12-28T00:00:00Z"),
    ("Pacific/Kwajalein", "1969-09-28T00:00:00Z"),
];

/// Minute by minute: a job at fixed hours has each of its times once, when the clock is first there or past it.
#[test]
fn the_times_over_a_change_of_the_clocks_are_those_that_a_clock_is_seen_to_show() {
    for (zone, from) in CHANGES {
        for expression in [
            "* * * * *",
            "*/20 * * * *",
            "5 */2 * * *",
            "15 1 * * *",
            "*/15 2 * * *",
            "30 0-23 * * *",
            "0 0 * * *",
            "45 1,2,23 * * *",
        ] {
            let calendar = Calendar::parse(expression, zone).unwrap_or_else(|(_, e)| panic!("{e:?}"));
            let begin = (at(from).0 + POSTGRES_EPOCH) / 1_000_000;
            let end = begin + 5 * 86_400;
            let shown = |time: i64| time + zone::offset(calendar.zone, time);
            let matches = |wall: i64| calendar.expression.next(wall) == Some(wall);
            let mut expected = Vec::new();
            // Up to where the clock has been before.
            let mut been = (begin - 86_400..begin).step_by(60).map(shown).max().expect("a time");
            for time in (begin..end).step_by(60) {
                let wall = shown(time);
                let is_time = match calendar.expression.any_hour {
                    true => matches(wall),
                    false => (been + 60..=wall).step_by(60).any(matches),
                };
                been = been.max(wall);
                if is_time {
                    expected.push(time);
                }
            }
            let mut found = Vec::new();
            let mut time = of_seconds(begin - 1);
            while let Some(next) = calendar.after(time).filter(|next| *next < of_seconds(end)) {
                found.push((next.0 + POSTGRES_EPOCH) / 1_000_000);
                time = next;
            }
            assert_eq!(found, expected, "{expression} in {zone}");
        }
    }
}

#[test]
fn the_last_times_over_a_change_of_the_clocks_are_those_found_forwards() {
    for (first, end) in
        [("2026-03-28T01:30:00Z", "2026-03-31T12:00:00Z"), ("2026-10-24T00:30:00Z", "2026-10-27T12:00:00Z")]
    {
        let calendar =
            Calendar::parse("30 2 * * *", "Europe/Berlin").unwrap_or_else(|(_, e)| panic!("{e:?}"));
        let forwards = calendar.first(at(first), at(end), usize::MAX);
        assert!(forwards.len() > 2, "{forwards:?}");
        for count in 1..=5 {
            let expected = &forwards[forwards.len().saturating_sub(count)..];
            assert_eq!(calendar.last(at(first), at(end), count), expected, "{count} from {first}");
        }
    }
}
