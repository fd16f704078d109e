// One measurement in a process of its own: `rate` or `latency` of a system. Prints a number, or numbers.
import { systems } from "./systems.mjs";

const [, , kind, name, connectionString, concurrency, count] = process.argv;
const wanted = Number(count);
let seen = 0;
let first;
let tell;
const system = await systems[name].open(connectionString, Number(concurrency), () => {
  first ??= performance.now();
  seen++;
  if (kind === "latency" || seen === wanted) tell?.(performance.now());
});

/** When the next one, or the last one, has run. */
const told = () =>
  new Promise((resolve) => {
    tell = resolve;
  });

if (kind === "rate") {
  for (let left = wanted; left > 0; left -= 1000) await system.insert(Math.min(left, 1000));
  const end = told();
  await system.start();
  // From the first handler on, so that what a start costs is left out.
  console.log(JSON.stringify((1000 * (wanted - 1)) / ((await end) - first)));
} else {
  await system.start();
  await new Promise((resolve) => setTimeout(resolve, 1500));
  const latencies = [];
  for (let n = 0; n < wanted; n++) {
    const begun = performance.now();
    const end = told();
    await system.insert(1);
    latencies.push((await end) - begun);
    await new Promise((resolve) => setTimeout(resolve, 20 * Math.random()));
  }
  console.log(JSON.stringify(latencies));
}
await system.stop();
process.exit();
