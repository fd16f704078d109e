//! What words of the page mean, for readers who do not know the queue.

use super::table::Section;

const WORDS: [(&str, &str); 12] = [
    ("ready", "a worker that asks for its action gets it"),
    ("in progress", "a worker has it, until the deadline at the latest, where there is one"),
    ("scheduled", "it waits for its time: a delay, or the back-off after a try that failed"),
    (
        "blocked",
        "it waits for other tasks, or is suspended: its worker gave it back until something has happened",
    ),
    ("completed", "it has ended well"),
    ("aborted", "it failed for good, was cancelled, came too late, or lost a task that it depends on"),
    ("skipped", "it was to run only if another task ended in another way: no failure"),
    ("oldest ready", "for how long the ready task that was inserted first has been in the queue"),
    ("in / out a minute", "tasks that come and that end in a minute, over the last five"),
    ("waiting, running", "from the insertion to the last grant, and from there to the end"),
    ("median, 99 %", "half of the tasks took no longer, and 99 of 100"),
    ("~", "an estimate"),
];

/// The part of the page that says so.
pub(super) fn section() -> Section {
    let words: String =
        WORDS.iter().map(|(word, meaning)| format!("<dt>{word}</dt><dd>{meaning}</dd>")).collect();
    let inside = format!("<details><summary>What the words mean</summary><dl>{words}</dl></details>");
    Section::new("legend", "Legend", inside)
}
