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
            "day of month \"MON\" cannot be read: \"MON\" is the name of another field",
            "last field",
        ),
        ("JAN * * * *", "minute \"JAN\" cannot be read: \"JAN\" is the name of another field", "last field"),
        ("0 FRI * * *", "hour \"FRI\" cannot be read: \"FRI\" is the name of another field", "last field"),
        (
            "0 9 * * JAN",
            "day of week \"JAN\" cannot be read: \"JAN\" is the name of another field",
            "last field",
        ),
        ("0 9 * MON *", "month \"MON\"", "last field"),
        ("0 9 1-JAN * *", "day of month \"1-JAN\"", "last field"),
        ("1MON * * * *", "\"1MON\" is no value", "five fields"),
        ("1,,2 * * * *", "minute \"1,,2\" cannot be read: one of its elements is empty", "comma"),
        (",1 * * * *", "one of its elements is empty", "comma"),
        ("0 9 * * 1,", "one of its elements is empty", "comma"),
        (", * * * *", "one of its elements is empty", "comma"),
        ("0 9 * * L", "day of week \"L\" cannot be read", "five fields"),
        ("0 9 * * MON#6", "day of week \"MON#6\"", "five fields"),
        ("0 9 * * MON#0", "day of week \"MON#0\"", "five fields"),
        ("0 9 * * MON-FRI#2", "\"MON-FRI#2\" is not one day", "FRI#1"),
        ("0 9 * * 1#2L", "\"1#2L\" is not one day", "FRI#1"),
        ("0 9 * * 1-5L", "\"1-5L\" is not one day", "FRIL"),
        ("0 9 * * 8L", "day of week \"8L\"", "five fields"),
        ("0 9 W * *", "day of month \"W\"", "five fields"),
        ("0 9 1-5W * *", "day of month \"1-5W\"", "five fields"),
        ("0 9 LW * *", "day of month \"LW\"", "five fields"),
        ("0 9 L-3 * *", "day of month \"L-3\"", "five fields"),
        ("0 9 15L * *", "\"15L\" is no value", "five fields"),
        ("0 9 * * 15W", "\"15W\" is no value", "five fields"),
        ("L 9 * * *", "minute \"L\"", "five fields"),
        ("5-1 * * * *", "minute \"5-1\"", "five fields"),
        ("0 9 * * FRI-MON", "day of week \"FRI-MON\"", "five fields"),
        ("*/0 * * * *", "minute \"*/0\"", "five fields"),
        ("*/ * * * *", "minute \"*/\"", "five fields"),
        ("1/2/3 * * * *", "minute \"1/2/3\"", "five fields"),
        ("-5 * * * *", "minute \"-5\"", "five fields"),
        ("+5 * * * *", "\"+5\" is no value", "five fields"),
        ("0 9 * * +1", "\"+1\" is no value", "five fields"),
        ("0 9 1,? * *", "\"?\" is no value", "five fields"),
        ("? 9 * * *", "\"?\" is no value", "five fields"),
        ("0 9 0 * *", "day of month \"0\"", "five fields"),
        ("99999999999999999999 9 * * *", "minute", "five fields"),
        ("* * * * * * *", "7 fields instead of 5 or 6", "five fields"),
        ("", "0 fields instead of 5 or 6", "five fields"),
        ("@", "no name of a cron expression", "@midnight"),
        ("@daily 5", "no name of a cron expression", "@midnight"),
        ("@weekly * * * *", "no name of a cron expression", "@midnight"),
        ("0 9 * * MONDAY", "\"MONDAY\" is no value", "five fields"),
        ("\u{ff11} * * * *", "is no value", "five fields"),
    ] {
        let Err((argument, why)) = Calendar::parse(expression, "UTC") else { panic!("{expression} is read") };
        assert_eq!(argument, "cron", "{expression}");
        assert!(why.what.contains(says), "{expression}: {why:?}");
        assert!(why.hint.contains(hint), "{expression}: {why:?}");
    }
}
