// JSON Schemas of what payloads.ts names, made of Slack's own types: generate.cjs OUTPUT
//
// Slack's types are laxer than Slack. So here the limits that their comments tell become rules, and
// the catch-all `Block`, which lets any object pass for a block, is taken out wherever the known
// blocks are listed beside it.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const ts = require("typescript");
const { createGenerator } = require("ts-json-schema-generator");

const types = path.join(__dirname, "payloads.ts");
const limits = {
  string: [/max(?:imum)? (?:length|number of characters)?[^.]*?([\d,]+) characters/i, "maxLength"],
  array: [/max(?:imum)?[^.]*?([\d,]+) (?:items|elements|blocks|options|option groups)/i, "maxItems"],
};

function names() {
  const found = [];
  const source = ts.createSourceFile(types, fs.readFileSync(types, "utf8"), ts.ScriptTarget.ES2022);
  for (const statement of source.statements) {
    if (ts.isTypeAliasDeclaration(statement)) found.push(statement.name.text);
    if (ts.isExportDeclaration(statement)) {
      found.push(...statement.exportClause.elements.map((one) => one.name.text));
    }
  }
  return found;
}

function limited(schema) {
  const { description = "", ...rest } = schema;
  if (schema.$ref?.endsWith("/PlainTextElement") || schema.$ref?.endsWith("/TextObject")) {
    const told = limits.string[0].exec(description);
    if (!told) return rest;
    const text = { maxLength: count(told) };
    return { allOf: [rest, { properties: { text } }] };
  }
  const [words, keyword] = limits[schema.type] ?? [];
  const told = words?.exec(description);
  return told ? { ...rest, [keyword]: count(told) } : rest;
}

function count(told) {
  return Number(told[1].replace(",", ""));
}

// What the types say and Slack does not do: outside of Enterprise Grid `enterprise` is null, and
// where a button stands in a view there is no message to answer through a `response_url`.
function mended(properties, required) {
  const { enterprise } = properties;
  if (enterprise?.type === "object") properties.enterprise = { anyOf: [enterprise, { type: "null" }] };
  if (required && properties.actions) return required.filter((name) => name !== "response_url");
  return required;
}

function strict(schema) {
  if (Array.isArray(schema)) return schema.map(strict);
  if (schema === null || typeof schema !== "object") return schema;
  const found = limited(schema);
  if (found.properties) {
    // A property may be called `description` or `type`, which is no word of the schema then.
    const { properties, required, ...rest } = found;
    const inner = Object.entries(properties).map(([name, one]) => [name, strict(one)]);
    const made = { ...strict(rest), properties: Object.fromEntries(inner) };
    const needed = mended(made.properties, required);
    return needed ? { ...made, required: needed } : made;
  }
  if (found.anyOf?.length > 1) {
    found.anyOf = found.anyOf.filter((one) => one.$ref !== "#/definitions/Block");
  }
  return Object.fromEntries(Object.entries(found).map(([name, one]) => [name, strict(one)]));
}

// What Keyturn says has no other fields than these. Slack may add fields to what it says.
const ours = /Arguments$|^Manifest$|^Said$|^Suggested$|^ViewResponseAction$/;

function opened(schema) {
  if (Array.isArray(schema)) return schema.map(opened);
  if (schema === null || typeof schema !== "object") return schema;
  const found = Object.entries(schema).filter(([name, one]) => name !== "additionalProperties" || one);
  return Object.fromEntries(found.map(([name, one]) => [name, opened(one)]));
}

// Answers are described by samples: any field may be null, and blocks are those that were sent,
// with the ids that Slack makes up.
const blocks = { type: "array", items: { type: "object", required: ["type", "block_id"] } };

function answer(schema) {
  for (const one of Object.values(schema.definitions)) {
    for (const [name, inner] of Object.entries(one.properties ?? {})) {
      one.properties[name] = name === "blocks" ? blocks : { anyOf: [inner, { type: "null" }] };
    }
  }
  return schema;
}

const generator = createGenerator({
  path: types,
  tsconfig: path.join(__dirname, "tsconfig.json"),
  skipTypeCheck: true,
  expose: "export",
  additionalProperties: false,
});
const made = {};
for (const name of names()) {
  const schema = strict(generator.createSchema(name));
  made[name] = ours.test(name) ? schema : opened(schema);
  if (name.endsWith("Response")) answer(made[name]);
}
made.Manifest.definitions.Manifest.additionalProperties = false;
fs.writeFileSync(process.argv[2], JSON.stringify(made));
