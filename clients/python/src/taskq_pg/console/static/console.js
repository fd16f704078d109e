// Live updates, keys, selection and charts. All else works without.
"use strict";

(() => {
  const busy = () => {
    const live = document.getElementById("live");
    const at = document.activeElement;
    return document.hidden || !live || document.querySelector("dialog[open]") ||
      live.querySelector("input:checked:not([data-all]), details[open]") ||
      (at && live.contains(at) && at.matches("input, select, textarea, button, a, summary")) || !getSelection().isCollapsed;
  };
  let timer;
  const later = (seconds) => { clearTimeout(timer); timer = setTimeout(refresh, seconds * 1000); };
  const every = () => Number(document.getElementById("live")?.dataset.every || 2);
  function refresh() {
    if (busy()) return later(every());
    window.htmx.trigger("#live", "refresh");
    later(Math.max(10, every()));
  }
  const lost = (is) => { const said = document.querySelector(".lost"); if (said) said.hidden = !is; };
  // How far each table is scrolled to the side.
  let aside = [];
  const tables = () => [...document.querySelectorAll("#live .scroll")];
  document.addEventListener("htmx:beforeSwap", (event) => {
    aside = tables().map((table) => table.scrollLeft);
    // What was selected while the answer was under way stays.
    if (event.detail.target?.id === "live" && busy()) event.detail.shouldSwap = false;
  });
  document.addEventListener("htmx:afterSettle", () => { tables().forEach((table, n) => { table.scrollLeft = aside[n] || 0; }); lost(false); mark(); later(every()); go(); });
  for (const name of ["htmx:sendError", "htmx:responseError", "htmx:timeout"])
    document.addEventListener(name, () => { lost(true); later(Math.max(5, every())); });

  // A step of a bulk act begins the next one.
  const go = () => {
    const form = document.querySelector("form[data-go]");
    if (form) setTimeout(() => document.contains(form) && form.requestSubmit(form.querySelector("button")), 50);
  };

  // Keys.
  let at = -1, prefix = false;
  const rows = () => [...document.querySelectorAll("table.rows tbody tr, .letter")];
  function mark() { rows().forEach((row, n) => row.classList.toggle("at", n === at)); }
  const move = (by) => {
    const all = rows();
    if (!all.length) return;
    at = Math.min(Math.max(at + by, 0), all.length - 1);
    mark();
    all[at].scrollIntoView({ block: "nearest" });
  };
  const screens = { o: "", t: "tasks", i: "inbox", f: "failures", w: "workflows", s: "schedules", l: "limits", k: "workers" };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox]), select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (prefix && event.key in screens) {
      prefix = false;
      const home = document.querySelector(".brand").getAttribute("href");
      location.assign(home + screens[event.key]);
      return;
    }
    prefix = event.key === "g";
    const row = rows()[at];
    if (event.key === "/") { event.preventDefault(); document.getElementById("q").focus(); }
    else if (event.key === "?") document.getElementById("help").showModal();
    else if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "Enter" && row && event.target === document.body) row.querySelector("a")?.click();
    else if (event.key === "x" && row) row.querySelector("input[type=checkbox]")?.click();
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-all]"))
      for (const box of document.querySelectorAll("#live input[name=id]")) box.checked = event.target.checked;
  });

  // Charts.
  const kinds = {
    ended: [["completed", "--completed"], ["aborted", "--aborted"]],
    waiting: [["waiting_p50", "--accent"], ["waiting_p99", "--warning"]],
    running: [["running_p50", "--accent"], ["running_p99", "--warning"]],
  };
  const seconds = (value) => value == null ? "" : value >= 3600 ? `${+(value / 3600).toFixed(1)} h` : value >= 60 ? `${+(value / 60).toFixed(1)} min`
    : value >= 1 ? `${+value.toFixed(1)} s` : `${Math.round(value * 1000)} ms`;
  const count = (value) => value == null ? "" : value >= 1e6 ? `${+(value / 1e6).toFixed(1)}M` : value >= 1e4 ? `${Math.round(value / 1e3)}k` : value.toLocaleString("en");
  // Steps of an axis of times, in seconds.
  const steps = [1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800];
  const drawn = [];
  function chart(place, data) {
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const kind = kinds[place.dataset.chart];
    const text = place.dataset.chart === "ended" ? count : seconds;
    const axis = { stroke: colour("--quiet"), font: "11px system-ui, sans-serif", grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const bars = place.dataset.chart === "ended" ? { paths: window.uPlot.paths.bars({ size: [0.8, 20] }), points: { show: false } } : { width: 1.5, points: { size: 4 } };
    place.replaceChildren();
    place.setAttribute("role", "img");
    const last = kind.map(([name]) => `${name.replace("_", " ")} ${text(data[name].findLast((value) => value != null)) || "none"}`).join(", ");
    place.setAttribute("aria-label", `the last value: ${last}`);
    drawn.push(new window.uPlot({
      width: place.clientWidth, height: 150, legend: { show: false }, cursor: { y: false, drag: { x: false } },
      scales: { y: { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] } },
      axes: [{ ...axis, grid: { show: false }, values: (_, all) => all.map((at) => new Date(at * 1000).toISOString().slice(11, 16)) }, { ...axis, size: 52, ...(text === seconds ? { incrs: steps } : {}), values: (_, all) => all.map(text) }],
      series: [{}, ...kind.map(([name, of]) => ({ label: name, stroke: colour(of), ...bars, ...(place.dataset.chart === "ended" ? { fill: colour(of) } : {}) }))],
    }, [data.at, ...kind.map(([name]) => data[name])], place));
  }
  async function charts() {
    const where = document.querySelector("[data-series]");
    if (!where || !window.uPlot) return;
    setTimeout(charts, 60000);
    if (document.hidden) return;
    const answer = await fetch(where.dataset.series, { headers: { accept: "application/json" } }).catch(() => null);
    if (!answer?.ok) return;
    const data = await answer.json();
    drawn.splice(0).forEach((one) => one.destroy());
    where.querySelectorAll("[data-chart]").forEach((place) => chart(place, data));
    where.dataset.drawn = "1";
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", charts);

  document.addEventListener("DOMContentLoaded", () => {
    const again = document.querySelector("[data-again]");
    if (again) setTimeout(() => location.reload(), again.dataset.again * 1000);
    later(every());
    go();
    charts();
  });
})();
