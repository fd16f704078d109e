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

/// The character, or one that stands for it: what no page and no picture may have, and what turns the direction of what
/// follows.
pub(in super::super) fn fit_for_a_page(c: char) -> char {
    let is_control = c.is_control() && !matches!(c, '\n' | '\t');
    if is_control || is_noncharacter(c) || is_direction(c) { '\u{fffd}' } else { c }
}

/// The last two of each plane, and 32 in between, which neither HTML nor XML has.
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

/// Colours by what they mean, light and dark.
pub(super) const STYLE: &str = "
:root { color-scheme: light dark; --bg: #f6f7f9; --card: #fff; --text: #1c2128; --soft: #616b78; --line: #dde1e7;
  --completed: #2f9e5d; --aborted: #d0393e; --progress: #2f6fd0; --ready: #c98a00; --blocked: #8b95a3; --scheduled: #7a5bc2; --skipped: #a9c7b3 }
@media (prefers-color-scheme: dark) { :root { --bg: #14171b; --card: #1d2126; --text: #e4e8ed; --soft: #98a2af; --line: #333a43;
  --completed: #46b877; --aborted: #f0666a; --progress: #6aa2f5; --ready: #e5b04a; --blocked: #7d8896; --scheduled: #a98fe8; --skipped: #4f6b5a } }
* { box-sizing: border-box }
body { margin: 0; padding: clamp(.75rem, 2vw, 2rem); background: var(--bg); color: var(--text); font: 15px/1.45 system-ui, sans-serif }
main { max-width: 1500px; margin: 0 auto; display: grid; gap: 1rem }
header { display: flex; flex-wrap: wrap; align-items: baseline; gap: .25rem 1rem }
h1 { font-size: 1.35rem; margin: 0 } h2 { font-size: 1rem; margin: 0 0 .6rem } p { margin: 0 }
.soft { color: var(--soft) } .card { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .9rem 1rem; min-width: 0 }
.charts { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 17rem), 1fr)) }
.wide { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .25rem .55rem; border-top: 1px solid var(--line); white-space: nowrap; vertical-align: top }
th { border-top: 0; white-space: normal; vertical-align: bottom; color: var(--soft); font-weight: 500; font-size: .85em } th:first-child, td:first-child { padding-left: 0 }
.t { text-align: left } td.t { white-space: normal; overflow-wrap: anywhere; min-width: 8rem }
.bar { display: block; width: 100%; min-width: 5rem; height: .6rem; margin-top: .35rem }
ul { list-style: none; margin: 0; padding: 0; display: grid; gap: .6rem } li { border-left: 4px solid var(--ready); padding-left: .7rem; overflow-wrap: anywhere }
li.critical { border-color: var(--aborted) } li.notice { border-color: var(--progress) }
svg { display: block; max-width: 100% } svg text { fill: var(--soft); font: 11px system-ui, sans-serif } svg .id { fill: var(--text); font-size: 12px }
.completed { fill: var(--completed) } .aborted { fill: var(--aborted) } .in-progress { fill: var(--progress) } .ready { fill: var(--ready) }
.blocked, .suspended, .signal { fill: var(--blocked) } .scheduled { fill: var(--scheduled) } .skipped { fill: var(--skipped) } .grid, .edge { stroke: var(--line); fill: none } .edge { stroke: var(--blocked) }
.p50, .p99 { fill: none; stroke: var(--progress); stroke-width: 1.8; stroke-linejoin: round } .p99 { stroke: var(--ready) }
.box { fill: var(--card); stroke: var(--line) } .key { font-weight: 400; font-size: .85em } .key span { white-space: nowrap } .key i { display: inline-block; width: .7rem; height: .7rem; border-radius: .15rem; margin: 0 .3rem 0 .8rem }
";

#[cfg(test)]
mod tests {
    use super::{Escaped, short};

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
}
