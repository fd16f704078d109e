const json = (text: string) => JSON.parse(text);
const number = (text: string) => Number(text);

/** By the number of the type: bool, int8, int4, float8, json, jsonb. */
const PARSERS = new Map<number, (text: string) => unknown>([
  [16, (text) => text === "t"],
  [20, number],
  [23, number],
  [701, number],
  [114, json],
  [3802, json],
]);
const text = (value: string) => value;

/**
 * How values are read on the connections of the package; what is not listed is a text. The parsers of `pg.types` are those of
 * the whole process, and an application may have set others there.
 */
export const COLUMN_TYPES = {
  getTypeParser: (type: number): any => PARSERS.get(type) ?? text,
};
