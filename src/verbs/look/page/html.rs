//! Text in pages.

use std::fmt;

/// A text that users wrote, as a page or a picture in it may have it: never markup, in an element or in an attribute.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => write!(f, "{}", fit_for_a_page(c))?,
            }
        }
        Ok(())
    }
}

/// The character, or one that stands for it: for controls other than line feed and tab, for what is no character, and for what embeds,
/// overrides or isolates a direction.
pub(in super::super) fn fit_for_a_page(c: char) -> char {
    let is_control = c.is_control() && !matches!(c, '\n' | '\t');
    if is_control || is_noncharacter(c) || is_direction(c) { '\u{fffd}' } else { c }
}

/// The last two of each plane, and 32 in between: Unicode has no characters for them.
fn is_noncharacter(c: char) -> bool {
    matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c) & 0xfffe == 0xfffe
}

fn is_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// So many characters of a text at most, escaped.
pub(super) fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return Escaped(text).to_string();
    }
    let begin: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", Escaped(&begin))
}

/// A text of which the middle is left out if it is longer than so many characters, escaped: where an error's text begins and
/// ends says most.
pub(super) fn ends_of(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return Escaped(text).to_string();
    }
    let tail = most / 3;
    let head: String = text.chars().take(most - tail).collect();
    let tail: String = text.chars().skip(count - tail).collect();
    format!("{} … {}", Escaped(head.trim_end()), Escaped(tail.trim_start()))
}

/// How many characters of a line are shown at once, and of a text that is unfolded, about.
const LINE: usize = 160;
const WHOLE: usize = 10_000;

/// A text that may have many lines, as errors do: the first and the last line, and [`WHOLE`] characters of it to unfold. A short text
/// of one line is shown as it is.
pub(super) fn folded(text: &str) -> String {
    // Workers on Windows may end lines with both.
    let text = &text.replace("\r\n", "\n");
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let summary = match lines.next_back() {
        None if first.chars().count() <= LINE => return Escaped(first).to_string(),
        None => ends_of(first, LINE),
        Some(last) => format!("{}<br>{}", ends_of(first, LINE), ends_of(last, LINE)),
    };
    format!("<details><summary>{summary}</summary><pre>{}</pre></details>", ends_of(text.trim_end(), WHOLE))
}

#[cfg(test)]
mod tests {
    use super::{Escaped, ends_of, folded, short};

    #[test]
    fn nothing_that_users_write_is_markup() {
        let text = "<b onclick=\"x\">'&amp;'</b>";
        let escaped = "&lt;b onclick=&quot;x&quot;&gt;&#39;&amp;amp;&#39;&lt;/b&gt;";
        assert_eq!(Escaped(text).to_string(), escaped);
        for c in [
            '\0',
            '\u{1b}',
            '\u{85}',
            '\u{202e}',
            '\u{fdd0}',
            '\u{fffe}',
            '\u{ffff}',
            '\u{1fffe}',
            '\u{10ffff}',
        ] {
            assert_eq!(Escaped(&c.to_string()).to_string(), "\u{fffd}", "{c:?}");
        }
        for c in ['\n', '\t', 'ä', '\u{fdf0}', '\u{fffd}', '\u{1fffd}'] {
            assert_eq!(Escaped(&c.to_string()).to_string(), c.to_string(), "{c:?}");
        }
    }

    #[test]
    fn a_text_is_cut_before_it_is_escaped() {
        assert_eq!(short("<<<<<", 3), "&lt;&lt;…");
        assert_eq!(short("äöü", 3), "äöü");
    }

    #[test]
    fn of_a_long_text_both_ends_are_kept() {
        assert_eq!(ends_of("<1234567890>", 12), "&lt;1234567890&gt;");
        assert_eq!(ends_of("<1234567890>", 9), "&lt;12345 … 90&gt;");
        assert_eq!(ends_of("äöü", 0), " … ");
    }

    #[test]
    fn the_first_and_the_last_line_of_an_error_are_shown_and_the_whole_can_be_unfolded() {
        assert_eq!(folded(" one <line>\n\n"), "one &lt;line&gt;");
        assert_eq!(folded(""), "");
        assert_eq!(
            folded("Traceback:\n  File \"x\"\n\nError: <b>\n"),
            "<details><summary>Traceback:<br>Error: &lt;b&gt;</summary>\
             <pre>Traceback:\n  File &quot;x&quot;\n\nError: &lt;b&gt;</pre></details>"
        );
        assert_eq!(
            folded("Traceback:\r\n  x\r\nError\r\n"),
            "<details><summary>Traceback:<br>Error</summary><pre>Traceback:\n  x\nError</pre></details>"
        );
        let long = folded(&format!("begin{}end", "x".repeat(1_000_000)));
        assert!(
            long.len() < 12_000
                && long.starts_with("<details><summary>begin")
                && long.ends_with("end</pre></details>")
        );
    }
}
