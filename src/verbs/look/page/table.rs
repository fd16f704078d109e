//! Parts of the page, and tables in them.

use std::fmt::Write;

use super::html::Escaped;

/// How many rows a table has at most. Most statements ask for one more, so that it is known whether there are more.
pub(super) const LISTED: usize = 50;

/// A part of the page with a name, to which others link.
pub(super) struct Section {
    /// To which links within the page lead.
    pub(super) id: &'static str,
    /// Its heading.
    pub(super) name: &'static str,
    /// What stands beside the name.
    pub(super) aside: String,
    /// What is in it, as HTML.
    pub(super) inside: String,
}

impl Section {
    /// A part with nothing beside its name.
    pub(super) fn new(id: &'static str, name: &'static str, inside: String) -> Self {
        Section { id, name, aside: String::new(), inside }
    }

    /// A part with this beside its name.
    pub(super) fn of(id: &'static str, name: &'static str, aside: String, inside: String) -> Self {
        Section { id, name, aside, inside }
    }

    /// The part as HTML.
    pub(super) fn html(&self) -> String {
        let aside = match self.aside.as_str() {
            "" => String::new(),
            aside => format!("<span class=\"aside\">{aside}</span>"),
        };
        format!(
            "<section class=\"card\" id=\"{}\"><h2>{}{aside}</h2>{}</section>",
            self.id, self.name, self.inside
        )
    }
}

/// A column: its name, and whether it has text or numbers.
pub(super) struct Column(pub(super) &'static str, pub(super) bool);

/// A column of text, which may be long and is on the left.
pub(super) const fn text(name: &'static str) -> Column {
    Column(name, true)
}

/// A column of numbers and other short things.
pub(super) const fn short(name: &'static str) -> Column {
    Column(name, false)
}

/// A table of cells that are escaped already, up to [`LISTED`] rows. Where there is no room for columns, most cells are shown
/// with their column's name before them.
pub(super) fn table<const N: usize>(columns: &[Column; N], rows: &[[String; N]]) -> String {
    let mut out = String::from("<div class=\"wide\"><table><thead><tr>");
    for Column(name, is_text) in columns {
        let class = if *is_text { " class=\"t\"" } else { "" };
        let _ = write!(out, "<th{class}>{name}</th>");
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows.iter().take(LISTED) {
        out.push_str("<tr>");
        for (Column(name, is_text), cell) in columns.iter().zip(row) {
            let class = match (cell.as_str(), is_text) {
                (_, true) => " class=\"t\"",
                ("0", false) => " class=\"zero\"",
                _ => "",
            };
            let _ = write!(out, "<td{class} data-name=\"{name}\">{cell}</td>");
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
    if rows.len() > LISTED {
        out.push_str("<p class=\"soft\">There are more.</p>");
    }
    out
}

/// What colours mean: pairs of a variable of the style and a name.
pub(super) fn key(entries: &[(&str, &str)]) -> String {
    entries
        .iter()
        .map(|(colour, name)| {
            format!("<span class=\"key\"><i style=\"background:var(--{colour})\"></i>{name}</span> ")
        })
        .collect()
}

/// The states of tasks and their colours.
pub(super) const STATES: [(&str, &str); 7] = [
    ("completed", "completed"),
    ("skipped", "skipped"),
    ("aborted", "aborted"),
    ("progress", "in progress"),
    ("ready", "ready"),
    ("scheduled", "scheduled"),
    ("blocked", "blocked"),
];

/// Parts of a whole, side by side: pairs of a class and a number.
pub(super) fn bar(parts: &[(&str, i64)]) -> String {
    let all: i64 = parts.iter().map(|(_, number)| number.max(&0)).sum();
    let mut out = String::from("<svg class=\"bar\" viewBox=\"0 0 100 6\" preserveAspectRatio=\"none\">");
    let mut at = 0.0;
    for (class, number) in parts.iter().filter(|(_, number)| *number > 0) {
        let wide = 100.0 * *number as f64 / all as f64;
        let _ = write!(
            out,
            "<rect class=\"{class}\" x=\"{at:.2}\" y=\"0\" width=\"{wide:.2}\" height=\"6\"><title>{number} {class}</title></rect>"
        );
        at += wide;
    }
    out.push_str("</svg>");
    out
}

/// How long ago, or until when, with the time itself where a pointer rests on it.
pub(super) fn age(age: &str, at: &str) -> String {
    format!("<span title=\"{}\">{age}</span>", Escaped(at))
}

/// The same for what is late.
pub(super) fn late(age: &str, at: &str) -> String {
    format!("<span class=\"late\" title=\"{}\">{age}</span>", Escaped(at))
}

#[cfg(test)]
mod tests {
    use super::{LISTED, Section, short, table, text};

    #[test]
    fn each_cell_says_what_it_is() {
        let columns = [text("name"), short("number")];
        let rows = [["x".to_owned(), "0".to_owned()]];
        assert_eq!(
            table(&columns, &rows),
            "<div class=\"wide\"><table><thead><tr><th class=\"t\">name</th><th>number</th></tr></thead>\
             <tbody><tr><td class=\"t\" data-name=\"name\">x</td><td class=\"zero\" data-name=\"number\">0</td></tr></tbody></table></div>"
        );
    }

    #[test]
    fn a_table_ends_after_fifty_rows_and_says_that_there_are_more() {
        let rows: Vec<[String; 2]> = (0..=LISTED).map(|n| [n.to_string(), String::new()]).collect();
        let columns = [text("name"), short("number")];
        let all = table(&columns, &rows[..LISTED]);
        assert_eq!((all.matches("<tr>").count(), all.contains("more")), (LISTED + 1, false));
        let some = table(&columns, &rows);
        assert_eq!((some.matches("<tr>").count(), some.contains("more")), (LISTED + 1, true));
    }

    #[test]
    fn a_section_has_a_name_to_link_to() {
        let html = Section::of("work", "At work", "3 tasks".to_owned(), "<p>x</p>".to_owned()).html();
        assert_eq!(
            html,
            "<section class=\"card\" id=\"work\"><h2>At work<span class=\"aside\">3 tasks</span></h2><p>x</p></section>"
        );
    }
}
