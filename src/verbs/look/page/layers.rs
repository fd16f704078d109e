//! A graph drawn in layers: a task stands to the right of those in the picture that it runs after.

use std::collections::HashMap;
use std::fmt::Write;

use super::html::{Escaped, short};

/// A task in the picture.
pub(in super::super) struct Box<'a> {
    /// The number of the task.
    pub(in super::super) number: i64,
    /// The id of the task.
    pub(in super::super) id: &'a str,
    /// The name of its action.
    pub(in super::super) action: &'a str,
    /// Its state, as the view `taskq.tasks` has it, or what is shown instead: `skipped`, `suspended`,
    /// `signal`.
    pub(in super::super) state: &'a str,
}

const WIDE: usize = 190;
const HIGH: usize = 40;
const GAP_X: usize = 56;
const GAP_Y: usize = 14;
const MARGIN: usize = 8;

/// The layer of each task: one more than the last of those that it runs after. Where links close a circle, which they
/// should not, the layers of its tasks mean nothing.
fn layers(numbers: &[i64], links: &[(i64, i64)]) -> HashMap<i64, usize> {
    let mut layer: HashMap<i64, usize> = numbers.iter().map(|n| (*n, 0)).collect();
    let mut left: HashMap<i64, usize> = HashMap::new();
    let mut after: HashMap<i64, Vec<i64>> = HashMap::new();
    for (from, to) in links {
        *left.entry(*to).or_default() += 1;
        after.entry(*from).or_default().push(*to);
    }
    let mut free: Vec<i64> = numbers.iter().copied().filter(|n| !left.contains_key(n)).collect();
    while let Some(number) = free.pop() {
        let next = layer[&number] + 1;
        for to in after.get(&number).map_or(&[][..], Vec::as_slice) {
            if let Some(place) = layer.get_mut(to) {
                *place = next.max(*place);
            }
            if let Some(count) = left.get_mut(to) {
                *count -= 1;
                if *count == 0 {
                    free.push(*to);
                }
            }
        }
    }
    layer
}

/// The picture, in SVG.
pub(in super::super) fn draw(boxes: &[Box], links: &[(i64, i64)]) -> String {
    let numbers: Vec<i64> = boxes.iter().map(|b| b.number).collect();
    let layer = layers(&numbers, links);
    let mut before: HashMap<i64, Vec<i64>> = HashMap::new();
    for (from, to) in links {
        before.entry(*to).or_default().push(*from);
    }
    let mut columns: Vec<Vec<&Box>> = vec![Vec::new(); layer.values().max().map_or(0, |last| last + 1)];
    for one in boxes {
        columns[layer[&one.number]].push(one);
    }
    // In the order of the middles of those that they run after, so that fewer lines cross.
    let mut row: HashMap<i64, usize> = HashMap::new();
    for column in &mut columns {
        let middle = |one: &&Box| {
            let rows: Vec<usize> =
                before.get(&one.number).into_iter().flatten().filter_map(|n| row.get(n).copied()).collect();
            if rows.is_empty() { 0 } else { 1000 * rows.iter().sum::<usize>() / rows.len() }
        };
        column.sort_by_cached_key(middle);
        row.extend(column.iter().enumerate().map(|(at, one)| (one.number, at)));
    }
    let corner =
        |number: i64| (MARGIN + layer[&number] * (WIDE + GAP_X), MARGIN + row[&number] * (HIGH + GAP_Y));
    let width = 2 * MARGIN + columns.len() * (WIDE + GAP_X) - GAP_X.min(columns.len() * GAP_X);
    let height = 2 * MARGIN + columns.iter().map(Vec::len).max().unwrap_or(0) * (HIGH + GAP_Y);
    let mut out = format!(
        "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" style=\"max-width:none\" role=\"img\" aria-label=\"graph\">"
    );
    for (from, to) in links.iter().filter(|(from, to)| layer.contains_key(from) && layer.contains_key(to)) {
        let ((x, y), (to_x, to_y)) = (corner(*from), corner(*to));
        let (x, y, to_y) = (x + WIDE, y + HIGH / 2, to_y + HIGH / 2);
        let bend = GAP_X / 2;
        let _ = write!(
            out,
            "<path class=\"edge\" d=\"M{x} {y}C{} {y} {} {to_y} {to_x} {to_y}\"/>",
            x + bend,
            to_x.saturating_sub(bend)
        );
    }
    for one in boxes {
        draw_box(&mut out, one, corner(one.number));
    }
    out.push_str("</svg>");
    out
}

/// One box, with its corner at this place.
fn draw_box(out: &mut String, one: &Box, (x, y): (usize, usize)) {
    let _ = write!(
        out,
        "<g id=\"t{}\"><title>{} {} {}</title><rect class=\"box\" x=\"{x}\" y=\"{y}\" width=\"{WIDE}\" height=\"{HIGH}\" rx=\"6\"/>\
             <rect class=\"{}\" x=\"{x}\" y=\"{y}\" width=\"6\" height=\"{HIGH}\" rx=\"3\"/>\
             <text class=\"id\" x=\"{}\" y=\"{}\">{}</text><text x=\"{}\" y=\"{}\">{}</text></g>",
        one.number,
        Escaped(one.id),
        Escaped(one.action),
        one.state,
        one.state,
        x + 14,
        y + 17,
        short(one.id, 24),
        x + 14,
        y + 32,
        short(one.action, 28),
    );
}

#[cfg(test)]
mod tests {
    use super::{Box, draw, layers};

    #[test]
    fn a_task_is_to_the_right_of_all_that_it_runs_after() {
        let layer = layers(&[1, 2, 3, 4, 5], &[(1, 2), (2, 3), (1, 3), (3, 4)]);
        assert_eq!([1, 2, 3, 4, 5].map(|n| layer[&n]), [0, 1, 2, 3, 0]);
        // A circle ends as well, and so does a link to a task that is not shown.
        assert_eq!(layers(&[1, 2], &[(1, 2), (2, 1), (9, 1)]).len(), 2);
    }

    #[test]
    fn a_picture_has_each_task_once() {
        let ids: Vec<String> = (0..50).map(|n| format!("<{n}>")).collect();
        let boxes: Vec<Box> =
            (0..50).map(|n| Box { number: n, id: &ids[n as usize], action: "a", state: "ready" }).collect();
        let links: Vec<(i64, i64)> = (1..50).map(|n| (n / 2, n)).collect();
        let picture = draw(&boxes, &links);
        assert_eq!(picture.matches("<title>&lt;").count(), 50);
        assert_eq!(picture.matches("class=\"edge\"").count(), 49);
        assert!(draw(&[], &[]).ends_with("</svg>"));
    }
}
