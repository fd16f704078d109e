//! How the page looks.

/// Colours by what they mean, light and dark; and tables without columns where there is no room for them.
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
.p50, .p99 { fill: none; stroke: var(--progress); stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round } .p99 { stroke: var(--ready) }
.box { fill: var(--card); stroke: var(--line) } nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .9em } a { color: inherit; text-decoration-color: var(--soft); text-underline-offset: .15em } nav a { white-space: nowrap }
:target { outline: 2px solid var(--progress); outline-offset: 2px } .late { color: var(--aborted) }
summary { cursor: pointer } summary::marker { color: var(--soft) } pre { margin: .4rem 0 0; padding: .5rem; max-height: 24rem; overflow: auto; background: var(--bg); border-radius: .3rem; font: 12px/1.4 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere }
.zero { color: var(--soft) } dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: .6rem 0 0 } dt { font-weight: 600 } dd { margin: 0 }
.aside { margin-left: .7rem; color: var(--soft); font-weight: 400; font-size: .85em } .charts .aside { display: block; margin-left: 0 }
.key { white-space: nowrap } .key i { display: inline-block; width: .7rem; height: .7rem; border-radius: .15rem; margin: 0 .3rem 0 0 } .key + .key { margin-left: .7rem }
@media (max-width: 40rem) {
  table, tbody, td { display: block } thead { display: none } dl { grid-template-columns: 1fr }
  tr { display: flex; flex-wrap: wrap; gap: .1rem .9rem; padding: .45rem 0; border-top: 1px solid var(--line) }
  td, td.t { border: 0; padding: 0; min-width: 0; text-align: left; white-space: normal; overflow-wrap: anywhere }
  td::before { content: attr(data-name) ' '; color: var(--soft); font-size: .85em } td:first-child, td.t:has(details), td:has(.bar) { flex-basis: 100% }
  td:first-child { font-weight: 600 } td:first-child::before, td:has(details)::before, td:has(.bar)::before { content: none } td:empty, td.zero { display: none }
}
";
