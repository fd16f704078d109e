//! What is refused.

use super::*;

#[test]
fn what_cannot_be_read_is_refused_by_argument() {
    assert_eq!(Calendar::parse("61 * * * *", "UTC").err().map(|e| e.0), Some("cron"));
    assert_eq!(Calendar::parse("* * *", "UTC").err().map(|e| e.0), Some("cron"));
    assert_eq!(Calendar::parse("* * * * *", "Mars/Olympus").err().map(|e| e.0), Some("timezone"));
}

/// Each with a part of what is said of it, and of the hint.
#[test]
fn what_has_no_clear_meaning_is_refused_with_a_hint() {
    for (expression, says, hint) in [
        (
            "0 9 MON * *",
            "day of month \"MON\" cannot be read: \"MON\" is the name of a day of the week",
            "last field",
        ),
        ("JAN * * * *", "minute \"JAN\" cannot be read: \"JAN\" is the name of a month", "last field"),
        (
            "0 FRI * * *",
            "hour \"FRI\" cannot be read: \"FRI\" is the name of a day of the week",
            "last field",
        ),
        ("0 9 * * JAN", "day of week \"JAN\" cannot be read: \"JAN\" is the name of a month", "last field"),
        ("0 9 * MON *", "month \"MON\"", "last field"),
        ("0 9 1-JAN * *", "day of month \"1-JAN\"", "last field"),
        ("1,,2 * * * *", "minute \"1,,2\" cannot be read: one of its elements is empty", "comma"),
        (",1 * * * *", "one of its elements is empty", "comma"),
        ("0 9 * * 1,", "one of its elements is empty", "comma"),
        (", * * * *", "one of its elements is empty", "comma"),
        ("0 9 * * L", "does not say of which day", "FRIL"),
        ("0 9 * * MON#6", "\"MON#6\" is none of the five", "FRI#1"),
        ("0 9 * * MON#0", "\"MON#0\" is none of the five", "FRI#1"),
        ("0 9 * * 8L", "\"8\" is no value from 0 to 7", "FRIL"),
        ("0 9 W * *", "day of month \"W\"", "15W"),
        ("0 9 1-5W * *", "day of month \"1-5W\"", "15W"),
        ("0 9 WL * *", "day of month \"WL\"", "LW"),
        ("0 9 L-3 * *", "\"L-3\" is no day", "LW"),
        ("0 9 15L * *", "\"15L\" is no day", "LW"),
        ("0 9 * * 15W", "day of week \"15W\"", "five fields"),
        ("L 9 * * *", "minute \"L\"", "five fields"),
        ("5-1 * * * *", "the range \"5-1\" goes backwards", "two ranges"),
        ("0 9 * * FRI-MON", "the range \"FRI-MON\" goes backwards", "two ranges"),
        ("*/0 * * * *", "has a step", "*/15"),
        ("*/ * * * *", "has a step", "*/15"),
        ("1/2/3 * * * *", "has a step", "*/15"),
        ("-5 * * * *", "\"\" is no value from 0 to 59", "five fields"),
        ("+5 * * * *", "\"+5\" is no value", "five fields"),
        ("0 9 * * +1", "\"+1\" is no value", "five fields"),
        ("0 9 1,? * *", "\"?\" is no value", "five fields"),
        ("? 9 * * *", "\"?\" is no value", "five fields"),
        ("0 9 0 * *", "\"0\" is no value from 1 to 31", "five fields"),
        ("99999999999999999999 9 * * *", "is no value from 0 to 59", "five fields"),
        ("* * * * * * *", "7 fields instead of 5 or 6", "five fields"),
        ("", "0 fields instead of 5 or 6", "five fields"),
        ("@", "no name of a cron expression", "@midnight"),
        ("@daily 5", "no name of a cron expression", "@midnight"),
        ("@weekly * * * *", "no name of a cron expression", "@midnight"),
        ("0 9 * * MONDAY", "\"MONDAY\" is no value", "five fields"),
        ("\u{ff11} * * * *", "is no value from 0 to 59", "five fields"),
    ] {
        let Err((argument, why)) = Calendar::parse(expression, "UTC") else { panic!("{expression} is read") };
        assert_eq!(argument, "cron", "{expression}");
        assert!(why.what.contains(says), "{expression}: {why:?}");
        assert!(why.hint.contains(hint), "{expression}: {why:?}");
    }
}
